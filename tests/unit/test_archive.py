"""The archive: a page that comes again changes nothing, and nothing that was archived is lost or filled again."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.archive import MARKS, Archiver, Blob, Erasure, blobs_of, without
from cosmos_outbox.outbox.errors import ConcurrentChange, NotDelivered, PreconditionFailed, Unavailable
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Unread
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.originals import AsDelivered
from cosmos_outbox.settings.environment import ArchiveSettings, load_archive
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.testing.simulation.archive import SimulatedArchive
from tests.support.feed import event_document, poison_document, read
from tests.support.kept_originals import KeptOriginals

MAY_4 = int(datetime(2026, 5, 4, 23, 59, 59, tzinfo=UTC).timestamp())


def event(contact: str, sequence: int, at: int = MAY_4, lsn: int = 1) -> OutboxEvent:
    found = read({**event_document(contact, sequence), "_ts": at, "_lsn": lsn, "_etag": "x"})
    assert isinstance(found, OutboxEvent)
    return found


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


def all_lines(archive: SimulatedArchive) -> list[dict[str, Any]]:
    return [line for name, (body, _) in archive.contents.items() if name != MARKS for line in lines(body)]


def test_events_are_lines_of_json_by_the_day_on_which_they_were_stored() -> None:
    page = [event("a", 2, MAY_4 + 1, lsn=12), event("a", 1, MAY_4, lsn=7)]
    first, second = blobs_of(page)
    assert first.name.startswith("2026/05/04/00000000000000000007-")
    assert second.name.startswith("2026/05/05/00000000000000000012-")
    [line] = lines(first.body)
    assert (line["aggregateType"], line["sequence"], line["lsn"]) == ("contact", 1, 7)
    assert line["storedAt"] == "2026-05-04T23:59:59+00:00"
    assert line["id"] == page[1].id
    assert line["document"]["data"] == page[1].document["data"]
    assert not [name for name in line["document"] if name.startswith("_")]


def test_a_document_that_is_no_event_is_archived_with_its_reason() -> None:
    [blob] = blobs_of([read({**poison_document("a", 7), "_ts": MAY_4})])
    [line] = lines(blob.body)
    assert line["invalid"]
    assert line["document"]


async def test_a_page_that_comes_again_is_the_same_blob_in_whatever_order() -> None:
    archive = SimulatedArchive()
    archiver = Archiver(archive, AsDelivered())
    page = [event("a", 1, lsn=1), event("b", 1, lsn=2)]
    assert await archiver.keep(page) == 2
    assert await archiver.keep(page[::-1]) == 2
    assert len(archive.contents) == 1


def test_nor_does_the_order_of_the_names_in_a_document_make_another_blob() -> None:
    first = event("a", 1)
    again = replace(first, document=dict(sorted(first.document.items(), reverse=True)))
    assert blobs_of([again]) == blobs_of([first])


async def test_what_was_read_of_a_page_is_forgotten_when_it_is_archived() -> None:
    originals = KeptOriginals()
    await Archiver(SimulatedArchive(), originals).keep([event("a", 1)])
    assert originals.kept == {}


async def test_a_late_writer_of_a_shorter_page_takes_nothing_away() -> None:
    """A process that was paused for so long that another one has its lease, and has written more."""
    archive = SimulatedArchive()
    archiver = Archiver(archive, AsDelivered())
    longer = [event("a", sequence, lsn=sequence) for sequence in range(1, 6)]
    await archiver.keep(longer)
    await archiver.keep(longer[:2])
    assert {line["sequence"] for line in all_lines(archive)} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("fails", [0.3, 0.9])
async def test_until_a_write_is_answered_the_page_is_not_done(fails: float) -> None:
    archive = SimulatedArchive(fails=fails)
    archiver = Archiver(archive, AsDelivered())
    page = [event("a", 1), event("a", 2, MAY_4 + 100)]
    for _ in range(5_000):
        try:
            await archiver.keep(page)
            break
        except Unavailable:
            continue
    assert sorted(line["sequence"] for line in all_lines(archive)) == [1, 2]


async def test_an_event_whose_original_cannot_be_read_waits_with_its_page() -> None:
    class Away(AsDelivered):
        async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
            return [Unread(events[0], "the store is away", Hindrance.STORE_AWAY)]  # type: ignore[arg-type]  # valid ones

    archive = SimulatedArchive()
    with pytest.raises(NotDelivered, match="the store is away"):
        await Archiver(archive, Away()).keep([event("a", 1)])
    assert archive.contents == {}


def erasure(of: OutboxEvent, lsn: int = 1000, kept: Sequence[str] = ()) -> Erasure:
    return Erasure(of.aggregate, of.partition, lsn, datetime.fromtimestamp(MAY_4 + 5, UTC), kept)


def readable(archive: SimulatedArchive, of: OutboxEvent) -> list[int]:
    return sorted(
        line["sequence"]
        for line in all_lines(archive)
        if "document" in line and line["aggregateId"] == of.aggregate.id
    )


async def test_an_erased_aggregate_leaves_ids_and_numbers_and_does_not_come_back() -> None:
    archive = SimulatedArchive()
    archiver = Archiver(archive, AsDelivered())
    page = [event("a", 1, lsn=1), event("b", 1, lsn=2), event("a", 2, lsn=3)]
    await archiver.keep(page)
    assert await archiver.erase(erasure(page[0])) == 2
    await archiver.keep(page)
    assert await archiver.erase(erasure(page[0])) == 0, "it is empty, also after the page came again"
    assert (readable(archive, page[0]), readable(archive, page[1])) == ([], [1])
    emptied = next(line for line in all_lines(archive) if line.get("id") == page[2].id)
    assert (emptied["erased"], emptied["action"]) == (True, page[2].action)
    assert page[0].aggregate.id not in archive.contents[MARKS][0].decode(), "nothing names anybody"


async def test_a_page_that_was_held_over_an_erasing_is_archived_without_what_was_erased() -> None:
    """Another process, with other bounds: its blob has another name. It may have been paused for days."""
    archive = SimulatedArchive()
    page = [event("a", 1, lsn=1), event("b", 1, lsn=2), event("a", 2, lsn=3), event("a", 3, lsn=9)]
    await Archiver(archive, AsDelivered()).keep(page)
    await Archiver(archive, AsDelivered()).erase(erasure(page[0], lsn=3))
    assert await Archiver(archive, AsDelivered()).keep(page[:3]) == 3
    assert (readable(archive, page[0]), readable(archive, page[1])) == ([3], [1, 1])


async def test_what_was_stored_long_before_an_erasing_is_emptied_whatever_its_number() -> None:
    """After a restore the account may count anew."""
    archive = SimulatedArchive()
    archiver = Archiver(archive, AsDelivered())
    page = [event("a", 1, MAY_4 - 3600, lsn=70_000), event("a", 2, MAY_4, lsn=7)]
    await archiver.keep(page)
    assert await archiver.erase(erasure(page[0], lsn=7)) == 2


async def test_an_earlier_erasing_that_comes_to_its_mark_late_takes_nothing_back() -> None:
    """It was paused while a later one, which saw more events, ran to its end."""
    archive = SimulatedArchive()
    [held] = page = [event("a", 1, MAY_4 + 1, lsn=5)]
    newer = erasure(held, lsn=9)
    await Archiver(archive, AsDelivered()).erase(newer)
    await Archiver(archive, AsDelivered()).erase(replace(newer, lsn=2, at=newer.at - timedelta(minutes=1)))
    await Archiver(archive, AsDelivered()).keep(page)
    assert readable(archive, held) == []


async def test_two_who_erase_at_once_both_leave_their_mark() -> None:
    archive = SimulatedArchive()
    pages = [[event(name, 1)] for name in "abcd"]
    await asyncio.gather(*(Archiver(archive, AsDelivered()).erase(erasure(page[0])) for page in pages[:3]))
    for page in pages:
        await Archiver(archive, AsDelivered()).keep(page)
    assert [readable(archive, page[0]) for page in pages] == [[], [], [], [1]]


@dataclass
class Meanwhile(SimulatedArchive):
    """Before a blob is claimed or replaced, somebody else does what is to happen meanwhile."""

    happens: Callable[[str], None] = lambda name: None
    claiming: Callable[[], Awaitable[object]] | None = None

    async def claim(self, name: str) -> str | None:
        if self.claiming is not None:
            claiming, self.claiming = self.claiming, None
            await claiming()
        return await super().claim(name)

    async def replace(self, blob: Blob, version: str) -> None:
        assert version, "it replaces a version, and not whatever is there"
        self.happens(blob.name)
        await super().replace(blob, version)


async def test_of_two_who_write_the_first_mark_at_once_neither_takes_the_others() -> None:
    archive = Meanwhile()
    first, second = event("a", 1), event("b", 1)
    archive.claiming = lambda: Archiver(archive, AsDelivered()).erase(erasure(second))
    await Archiver(archive, AsDelivered()).erase(erasure(first))
    await Archiver(archive, AsDelivered()).keep([first, second])
    assert (readable(archive, first), readable(archive, second)) == ([], [])


async def test_a_blob_that_holds_nothing_of_it_is_not_written_anew() -> None:
    archive = SimulatedArchive()
    other = event("b", 1)
    await Archiver(archive, AsDelivered()).keep([other])
    before = dict(archive.contents)
    assert await Archiver(archive, AsDelivered()).erase(erasure(event("a", 1))) == 0
    assert {name: archive.contents[name] for name in before} == before


@pytest.mark.parametrize("blob", ["a page", MARKS])
async def test_who_finds_what_it_erases_changed_each_time_is_told_to_come_again(blob: str) -> None:
    """Else it would count as erased, and could be read, or come back."""
    archive = Meanwhile()
    page = [event("a", 1)]
    await Archiver(archive, AsDelivered()).keep(page)

    def change(name: str) -> None:
        if (name == MARKS) == (blob == MARKS):
            body, version = archive.contents[name]
            archive.contents[name] = body, version + 1

    archive.happens = change
    with pytest.raises(ConcurrentChange, match="run the same command again"):
        await Archiver(archive, AsDelivered()).erase(erasure(page[0]))


async def test_a_blob_that_is_gone_before_it_is_emptied_holds_nothing_that_was_erased() -> None:
    archive = Meanwhile()
    page = [event("a", 1)]
    await Archiver(archive, AsDelivered()).keep(page)

    def drop(name: str) -> None:
        if name != MARKS:
            del archive.contents[name]

    archive.happens = drop
    assert await Archiver(archive, AsDelivered()).erase(erasure(page[0])) == 0


@dataclass
class StepByStep(SimulatedArchive):
    """A request waits until it is its caller's turn."""

    waiting: dict[str, asyncio.Event] = field(default_factory=dict)

    async def arrive(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        turn = self.waiting[me.get_name()] = asyncio.Event()
        await turn.wait()


async def in_turns(schedule: Sequence[str], **calls: Any) -> list[str]:
    """Run calls, one request after the other, as the schedule says and then in any order. Returns who was asked."""
    archive: StepByStep = calls.pop("archive")
    tasks = {name: asyncio.create_task(call, name=name) for name, call in calls.items()}
    took: list[str] = []
    while True:
        for _ in range(3):
            await asyncio.sleep(0)
        alive = sorted(name for name in tasks if not tasks[name].done())
        if not alive:
            break
        wanted = schedule[len(took)] if len(took) < len(schedule) else alive[0]
        if wanted not in alive:
            wanted = alive[0]
        took.append(wanted)
        archive.waiting.pop(wanted).set()
    for task in tasks.values():
        with suppress(PreconditionFailed):
            task.result()
    return took


async def assert_nothing_comes_back(schedule: Sequence[str], writers: Sequence[str]) -> list[str]:
    """With writers of the same page, or of other bounds. Returns who was asked."""
    page = [event("a", 1, lsn=1), event("b", 1, lsn=2), event("a", 2, lsn=3)]
    archive = StepByStep()
    held = {name: page if name == "early" else page[:2] for name in writers}
    took = await in_turns(
        schedule,
        archive=archive,
        erasing=Archiver(archive, AsDelivered()).erase(erasure(page[0])),
        **{name: Archiver(archive, AsDelivered()).keep(of) for name, of in held.items()},
    )
    assert readable(archive, page[0]) == [], took
    archive.waiting.clear()
    for of in held.values():
        await in_turns((), archive=archive, again=Archiver(archive, AsDelivered()).keep(of))
    assert readable(archive, page[0]) == [], took
    assert set(readable(archive, page[1])) == {1}, "a page that was refused is handed over again"
    return took


async def test_whatever_the_order_of_their_requests_nothing_erased_can_be_read_afterwards() -> None:
    """Every order of the requests of a paused writer and of who erases."""
    seen: set[tuple[str, ...]] = {()}
    to_run: list[tuple[str, ...]] = [()]
    while to_run:
        schedule = to_run.pop()
        took = await assert_nothing_comes_back(schedule, ["late"])
        for place in range(len(schedule), len(took)):
            other = (*took[:place], "late" if took[place] == "erasing" else "erasing")
            if other[-1] in took[place:] and other not in seen:
                seen.add(other)
                to_run.append(other)
    assert len(seen) > 50


async def test_two_paused_writers_bring_nothing_back_either() -> None:
    chance = random.Random(20_000)
    for _ in range(200):
        schedule = chance.choices(["early", "late", "late again", "erasing"], [1, 1, 1, 2], k=20)
        await assert_nothing_comes_back(schedule, ["early", "late", "late again"])


def test_the_event_that_names_nobody_is_kept() -> None:
    page = [event("a", 1, lsn=1), replace(event("a", 2, lsn=2), action="ContactDeletedEvent")]
    [blob] = blobs_of(page)
    body, number = without(blob.body, [erasure(page[0], kept=["ContactDeletedEvent"])])
    assert number == 1
    assert ["document" in line for line in lines(body)] == [False, True]
    of_another = replace(erasure(page[0]), aggregate=AggregateKey("order", page[0].aggregate.id))
    assert without(blob.body, [of_another]) == (blob.body, 0)
    elsewhere = replace(erasure(page[0]), partition="another")
    assert without(blob.body, [elsewhere]) == (blob.body, 0)


def test_events_are_archived_where_a_setting_says_where() -> None:
    assert load_archive({"COSMOS": "x"}) is None
    found = load_archive({"ARCHIVE": "UseDevelopmentStorage=true", "ARCHIVE_CONTAINER": "audit"})
    assert isinstance(found, ArchiveSettings)
    assert (found.container, found.lease_prefix, found.indexed) == ("audit", "archive-relay-", False)
    found = load_archive({"ARCHIVE": "UseDevelopmentStorage=true", "ARCHIVE_INDEX": "True"})
    assert found is not None
    assert found.indexed
    found = load_archive({"ARCHIVE__blobServiceUri": "https://a.blob.core.windows.net"})
    assert found is not None
    assert (found.connection.address, found.container) == ("https://a.blob.core.windows.net", "event-archive")
    with pytest.raises(Misconfigured, match="ARCHIVE__blobServiceUri is not"):
        load_archive({"ARCHIVE__credential": "managedidentity"})
