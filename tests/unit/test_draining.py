"""A relay for a time ends when the time is over and not before; with ``--once``, when all is forwarded."""

import asyncio
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosmos_outbox.worker import draining
from cosmos_outbox.worker.draining import Task, _Run


@dataclass
class Observer:
    answers: list[bool | None] = field(default_factory=list)

    async def has_forwarded(self, token: str) -> bool | None:
        return self.answers.pop(0) if self.answers else True


@dataclass
class Outbox:
    observer: Observer
    deadlines: None = None
    archiving: Any = None
    feed: Any = field(default_factory=lambda: SimpleNamespace(id="contacts"))

    relay: Any = field(default_factory=lambda: SimpleNamespace(reading_seconds=60.0))

    def container(self, name: str) -> str:
        return name


@dataclass
class Health:
    outbox: Outbox
    started: bool = True
    processor: Any = field(default_factory=lambda: SimpleNamespace(missing_ranges=()))


async def ended(
    task: Task, *answers: bool | None, archived: Any = None, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, bool, float]:
    """What ended the run, whether all was forwarded, and the seconds that it took."""

    async def fence(container: str, feed: object) -> str:
        return f"the end of {container}"

    monkeypatch.setattr(draining, "fence_everywhere", fence)
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.01)
    outbox = Outbox(Observer(list(answers)))
    if archived is not None:
        outbox.archiving = SimpleNamespace(observer=Observer(archived))
    run = _Run(cast("Any", Health(outbox)), task, asyncio.Event())
    working = asyncio.create_task(asyncio.sleep(60))
    began = time.monotonic()
    reason = await run.until_done(working)
    working.cancel()
    return reason, run.whole, time.monotonic() - began


async def test_for_a_time_it_goes_on_though_all_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, whole, seconds = await ended(Task(once=False, seconds=0.3), monkeypatch=monkeypatch)
    assert (reason, whole, seconds >= 0.3) == ("0.3 s are over", True, True)


async def test_once_it_ends_when_all_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, whole, _ = await ended(Task(once=True), False, None, False, True, monkeypatch=monkeypatch)
    assert (reason, whole) == ("all is forwarded", True)


async def test_once_with_a_time_it_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, whole, _ = await ended(Task(once=True, seconds=0.1), *[False] * 1000, monkeypatch=monkeypatch)
    assert (reason, whole) == ("0.1 s are over", False)


async def test_once_it_ends_when_all_is_archived_too(monkeypatch: pytest.MonkeyPatch) -> None:
    archived: list[bool | None] = [None, False, True]
    reason, whole, _ = await ended(Task(once=True), False, archived=archived, monkeypatch=monkeypatch)
    assert (reason, whole, archived) == ("all is forwarded", True, [])
