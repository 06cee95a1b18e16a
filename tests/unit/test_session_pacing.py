"""A broker that refuses at once, whatever its words, is asked ever more rarely; one outage is told once."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from cosmos_outbox.servicebus.sessions import WAITING, Sessions
from cosmos_outbox.telemetry.work import Work
from devstack.testing import eventually

FIRST_PAUSE = 0.05


@dataclass
class Refusing:
    """Refuses to open a receiver, or to receive with one that was opened."""

    error: AzureError
    opens: bool = False
    asked: list[float] = field(default_factory=list)
    session: Any = None

    def get_subscription_receiver(self, *_: object, **__: object) -> "Refusing":
        self.asked.append(asyncio.get_running_loop().time())
        return self

    async def __aenter__(self) -> "Refusing":
        if not self.opens:
            raise self.error
        return self

    async def receive_messages(self, *_: object) -> list[Any]:
        raise self.error

    async def close(self) -> None:
        """Nothing is open."""


class Session:
    locked_until_utc = None


async def nothing(*_: object) -> None:
    raise AssertionError("nothing was received")


@pytest.mark.parametrize(
    ("error", "opens"),
    [
        (OperationTimeoutError(), False),
        (SessionCannotBeLockedError(), False),
        (MessagingEntityDisabledError(), False),
        (ServiceBusError("x"), False),
        (OperationTimeoutError(), True),
        (SessionLockLostError(), True),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else f"opens {given}",
)
async def test_a_refusal_is_followed_by_a_pause_as_long_as_the_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: AzureError, opens: bool
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("cosmos_outbox.telemetry.work._FIRST_PAUSE_SECONDS", FIRST_PAUSE)
    client, stop, work = Refusing(error, opens, session=Session()), asyncio.Event(), Work()
    serving = asyncio.create_task(
        Sessions(cast(Any, client), "t", "s").serve(nothing, stop, work, slots=WAITING)
    )
    rounds = 6
    await eventually(lambda: len(client.asked) >= rounds * WAITING)
    stop.set()
    await serving
    lasted = client.asked[rounds * WAITING - 1] - client.asked[0]
    assert lasted > 15 * FIRST_PAUSE, "1, 1, 2, 4, 8: each pause is as long as all before it"
    assert work.waiting_for is not None
    assert [each.levelname for each in caplog.records if each.name.startswith("cosmos_outbox")] == ["WARNING"]


async def test_one_session_that_fails_does_not_make_a_worker_unready() -> None:
    work = Work()
    seen = [work.waiting_for]
    work.failed("its lock was lost", opening=False)
    seen.append(work.waiting_for)
    work.failed("Service Bus cannot be reached", opening=True)
    seen.append(work.waiting_for)
    work.came_through()
    assert [*seen, work.waiting_for] == [None, None, "Service Bus cannot be reached", None]
