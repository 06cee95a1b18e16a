"""A worker of a program that has ended begins again, ever more seldom; what is misconfigured ends a program's start."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.worker import running
from tests.support.processor import now
from tests.support.virtual_time import in_virtual_time


class Well:
    """How a worker is that works."""

    silent_seconds = longest_round_seconds = 0.0

    def line(self) -> str:
        return "no event waits"

    async def trouble(self) -> str | None:
        return None


@dataclass
class Worker:
    """It ends with an error after so many seconds, each time, and then works until it is told to stop."""

    lives: list[tuple[float, Exception]]
    began: list[float] = field(default_factory=list)

    def begin(self, part: Any) -> tuple[Well, Awaitable[None]]:
        self.began.append(now())
        return Well(), self._work(part)

    async def _work(self, part: Any) -> None:
        if not self.lives:
            await part.stop.wait()
            return
        seconds, error = self.lives.pop(0)
        await asyncio.sleep(seconds)
        raise error


def kept_up(worker: Worker, *, until: float, entered: bool = True) -> None:
    """Until so many seconds have passed."""

    async def story() -> None:
        stop, begun = asyncio.Event(), asyncio.Event()
        if entered:
            begun.set()
        part = running._Part("relay", worker.begin, stop)
        asyncio.get_running_loop().call_later(until, stop.set)
        await part.keep_up(begun)

    in_virtual_time(story())


def ends(*seconds: float) -> list[tuple[float, Exception]]:
    return [(each, ZeroDivisionError("a bug")) for each in seconds]


def test_it_begins_ever_more_seldom_and_as_at_first_when_it_has_worked_for_long() -> None:
    worker = Worker(ends(0, 0, 0, 0, 0, 0, 0, 29, 31, 0))
    kept_up(worker, until=1000)
    assert worker.began == [0, 1, 3, 7, 15, 31, 61, 91, 150, 182, 184]


def test_a_stop_ends_the_wait_for_the_next_beginning() -> None:
    worker = Worker(ends(0, 0, 0))
    kept_up(worker, until=2)
    assert worker.began == [0, 1]


def test_what_cannot_be_right_is_raised_to_the_program_that_has_not_begun_and_a_bug_is_not() -> None:
    with pytest.raises(Misconfigured, match="no such topic"):
        kept_up(Worker([(0, Misconfigured("no such topic"))]), until=10, entered=False)
    for entered, error in ((True, Misconfigured("no such topic")), (False, ZeroDivisionError("a bug"))):
        worker = Worker([(0, error)])
        kept_up(worker, until=10, entered=entered)
        assert worker.began == [0, 1]


def test_why_events_wait_is_told_before_it_begins_and_between_its_lives() -> None:
    async def story() -> list[tuple[float, str | None, str]]:
        looks, stop = list[tuple[float, str | None, str]](), asyncio.Event()
        part = running._Part("relay to partner", Worker(ends(3)).begin, stop)
        health = running.RunningHealth([part])
        looks.append((now(), await health.trouble(), health.line()))
        working = asyncio.create_task(part.keep_up(asyncio.Event()))
        for _ in range(3):
            await asyncio.sleep(1.5)
            looks.append((now(), await health.trouble(), health.line()))
        stop.set()
        await working
        return looks

    ended = "the relay to partner has ended, and begins again: the log says why"
    assert in_virtual_time(story()) == [
        (0, "the relay to partner has not begun", ""),
        (1.5, None, "relay to partner: no event waits"),
        (3, ended, f"relay to partner: {ended}"),
        (4.5, None, "relay to partner: no event waits"),
    ]
