"""A subscriber's worker in virtual time: what it does beside its messages, and how it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.worker import subscriber
from tests.support.processor import now
from tests.support.virtual_time import in_virtual_time

Serve = Callable[[asyncio.Event], Awaitable[None]]


async def until_stopped(stop: asyncio.Event) -> None:
    await stop.wait()


class Subscription:
    """What a worker does with one, and when."""

    def __init__(self, serve: Serve, fails: list[Exception]) -> None:
        self.watched: list[float] = []
        self.swept: list[tuple[float, float]] = []
        self._fails, self._serve = fails, serve
        sessions = SimpleNamespace(serve=self._sessions)
        self.subscriber = SimpleNamespace(
            watch=self._watch,
            queues=lambda: SimpleNamespace(sessions=sessions),
            receiver=SimpleNamespace(receive=None),
        )
        self.sweep = SimpleNamespace(run=self._sweep)

    async def _sessions(self, _: object, stop: asyncio.Event, __: object, *, slots: int) -> None:
        assert slots == 2
        await self._serve(stop)

    async def _watch(self) -> None:
        self.watched.append(now())
        if self._fails:
            raise self._fails.pop(0)

    async def _sweep(self, *, seconds: float) -> None:
        self.swept.append((now(), seconds))


def run(until: float, *fails: Exception, serve: Serve = until_stopped) -> tuple[Subscription, float]:
    """Until so many seconds have passed; when it ended."""
    subscription = Subscription(serve, [*fails])
    service = SimpleNamespace(subscriptions={"s": subscription}, resources=AsyncExitStack())

    async def story() -> float:
        stop, others = asyncio.Event(), asyncio.all_tasks()
        asyncio.get_running_loop().call_later(until, stop.set)
        await subscriber.run(cast(Any, service), stop, slots=2)
        assert asyncio.all_tasks() == others
        return now()

    return subscription, in_virtual_time(story())


def test_what_was_set_aside_is_looked_at_each_minute_and_the_sweep_goes_on_each_ten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done, ended = run(1250, StoreAway("the store is away"), ValueError("a bug"))
    assert done.watched == [60 * n for n in range(1, 21)]
    assert done.swept == [(600, 120), (1200, 120)]
    assert ended == 1250
    assert "what was set aside waits: the store is away" in caplog.text
    assert caplog.text.count("because of a bug") == 1


@pytest.mark.parametrize(("seconds", "ended"), [(15, 25), (100, 30)])
def test_a_stop_waits_for_the_messages_in_hand_for_twenty_seconds(seconds: float, ended: float) -> None:
    async def serve(stop: asyncio.Event) -> None:
        await stop.wait()
        await asyncio.sleep(seconds)

    assert run(10, serve=serve)[1] == ended


def test_what_ends_the_serving_ends_the_worker() -> None:
    async def serve(_: asyncio.Event) -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError("a bug")

    with pytest.raises(ExceptionGroup) as raised:
        run(10, serve=serve)
    assert raised.group_contains(ZeroDivisionError)
