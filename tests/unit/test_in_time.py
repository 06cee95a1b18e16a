"""A call of the broker's SDK ends in time, though the SDK loses a cancellation, as ``asyncio.wait_for`` of 3.11 can."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from cosmos_outbox.servicebus.client import in_time

PATIENCE = 20
"""Until a test that hangs is ended, in seconds: no test takes as long."""


async def deaf(cancellations: int) -> None:
    """Loses so many cancellations, then ends with the next one."""
    for _ in range(cancellations):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosmos_outbox.servicebus.client.AGAIN_SECONDS", 0.01)


@dataclass
class Receiver:
    """Loses one cancellation in the method of this name; receives nothing."""

    deaf_in: str
    calls: list[str] = field(default_factory=list)
    session: Any = None

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.deaf_in:
            await deaf(1)

    async def __aenter__(self) -> "Receiver":
        await self._called("open")
        return self

    async def receive_messages(self, *_: object, **__: object) -> list[Any]:
        await self._called("receive")
        return []

    async def close(self) -> None:
        await self._called("close")


async def nothing(*_: object) -> None:
    raise AssertionError("nothing was received")


async def test_what_comes_although_it_was_cancelled_is_not_lost() -> None:
    """Messages that were received as the time was over are locked: nobody else would get them for a while."""

    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "messages"
        raise AssertionError

    assert await in_time(late(), asyncio.get_running_loop().time()) == "messages"


async def test_a_call_that_no_cancellation_ends_is_left(caplog: pytest.LogCaptureFixture) -> None:
    over = asyncio.Event()

    async def never() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    try:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(TimeoutError):
                await in_time(never(), asyncio.get_running_loop().time())
        assert "did not end after it was cancelled" in caplog.text
    finally:
        over.set()  # or the loop would wait for it


async def test_who_waits_and_is_cancelled_ends_too() -> None:
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(in_time(deaf(2), loop.time() + PATIENCE))
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await waiting
