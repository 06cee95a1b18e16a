"""A receiver that never opens does not take a place of the trigger for good."""

import asyncio

import pytest

from devstack.functions import servicebus_trigger
from devstack.functions.servicebus_trigger import ServiceBusTrigger


class Stuck:
    """As the SDK's when the link of its token is detached while it opens."""

    closed = False

    async def __aenter__(self) -> "Stuck":
        await asyncio.Event().wait()
        return self

    async def close(self) -> None:
        self.closed = True


async def test_a_receiver_that_never_opens_is_given_up_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicebus_trigger, "OPEN_SECONDS", 0.05)
    stuck, trigger = Stuck(), ServiceBusTrigger.__new__(ServiceBusTrigger)
    trigger._closing = set()
    monkeypatch.setattr(trigger, "_make_receiver", lambda **_: stuck)
    with pytest.raises(TimeoutError):
        async with trigger._receiver(session=True):
            pytest.fail("it cannot have been opened")
    await asyncio.gather(*trigger._closing)
    assert stuck.closed
