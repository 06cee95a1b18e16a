"""The worker of the archive goes on whatever fails, and its stop waits for the page in hand, for some seconds."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.worker import archive
from tests.support.processor import Processor, now
from tests.support.virtual_time import in_virtual_time


@dataclass
class Archiving:
    """What the worker gives its pages to."""

    fails: list[Exception] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)
    lease_prefix: str = "archive"

    async def keep(self, items: Any) -> int:
        self.kept.append(items)
        return 1

    async def watch(self) -> None:
        self.watched.append(now())
        if self.fails:
            raise self.fails.pop(0)


def work(
    processor: Processor, archiving: Archiving, monkeypatch: pytest.MonkeyPatch, *, until: float
) -> float:
    """Archive until so many seconds have passed. When it ended."""
    monkeypatch.setattr(changefeed, "ChangeFeedProcessor", processor)
    outbox = SimpleNamespace(feed="feed", leases="leases", reading=SimpleNamespace(max_items=100))

    async def story() -> float:
        stop = asyncio.Event()
        if until:
            asyncio.get_running_loop().call_later(until, stop.set)
        else:
            stop.set()
        await archive.keep(cast(Any, outbox), cast(Any, archiving), stop)
        return now()

    return in_virtual_time(story())


def test_the_archive_begins_as_soon_as_the_store_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = [Unavailable("the store is away"), changefeed.ChangeFeedError("no feed"), OSError("no network")]
    processor, archiving = Processor([*away]), Archiving()
    assert work(processor, archiving, monkeypatch, until=200) == 200
    assert processor.started == [0, 5, 10, 15]
    assert archiving.watched == [75, 135, 195]
    assert processor.stopped == [True]
    assert caplog.text.count("events are not archived, and are tried again: the store is away") == 1
    assert caplog.text.count("events are not archived") == 1, "once a minute"


def test_a_store_that_never_answers_does_not_hold_up_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Processor([Unavailable("the store is away") for _ in range(100)])
    assert work(processor, Archiving(), monkeypatch, until=12) == 12
    assert (processor.started, processor.stopped) == ([0, 5, 10], [])


def test_what_is_told_to_stop_before_it_begins_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Processor()
    assert work(processor, Archiving(), monkeypatch, until=0) == 0
    assert (processor.started, processor.stopped) == ([], [])


def test_a_bug_in_the_watch_does_not_end_the_archive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processor, archiving = Processor(), Archiving([ValueError("a bug")])
    work(processor, archiving, monkeypatch, until=150)
    assert archiving.watched == [60, 120]
    assert "events are not archived, and are tried again: a bug" in caplog.text


def test_a_page_that_takes_too_long_is_left_to_the_next_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Processor(page_seconds=15)
    assert work(processor, Archiving(), monkeypatch, until=10) == 25
    assert processor.stopped == [True]
    processor = Processor(page_seconds=100)
    assert work(processor, Archiving(), monkeypatch, until=10) == 30, "within 20 s"
    assert processor.stopped == [True, False]


def test_the_archive_reads_all_of_the_feed_every_five_seconds_with_leases_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processor, archiving = Processor(), Archiving()
    work(processor, archiving, monkeypatch, until=10)
    feed, leases, handler = processor.given
    assert (feed, leases, processor.options["lease_prefix"]) == ("feed", "leases", "archive")
    options = processor.options["options"]
    assert (options.poll_interval, options.max_items, options.mend_leases) == (5.0, 100, True)
    assert options.start == changefeed.StartFrom.beginning()

    in_virtual_time(handler(["a change"], None))
    assert archiving.kept == [["a change"]]
    failed: Callable[..., None] = processor.options["on_error"]
    in_virtual_time(_call(failed, "0", Unavailable("a page could not be stored")))
    assert "tried again: a page could not be stored" in caplog.text


async def _call(failed: Callable[..., None], lease: str, error: Exception) -> None:
    failed(lease, error)
