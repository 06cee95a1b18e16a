"""The archive: a page that comes again changes nothing, and nothing that was archived is lost or filled again."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.archive import Archiver, blobs_of, without
from cosmos_outbox.outbox.errors import NotDelivered, Unavailable
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Unread
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.originals import AsDelivered
from cosmos_outbox.settings.environment import ArchiveSettings, load_archive
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.testing.simulation.archive import SimulatedArchive
from tests.support.feed import event_document, poison_document, read

MAY_4 = int(datetime(2026, 5, 4, 23, 59, 59, tzinfo=UTC).timestamp())


def event(contact: str, sequence: int, at: int = MAY_4, lsn: int = 1) -> OutboxEvent:
    found = read({**event_document(contact, sequence), "_ts": at, "_lsn": lsn, "_etag": "x"})
    assert isinstance(found, OutboxEvent)
    return found


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


def all_lines(archive: SimulatedArchive) -> list[dict[str, Any]]:
    return [line for body, _ in archive.contents.values() for line in lines(body)]


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
    for _ in range(200):
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


async def test_an_erased_aggregate_leaves_ids_and_numbers_and_does_not_come_back() -> None:
    archive = SimulatedArchive()
    archiver = Archiver(archive, AsDelivered())
    page = [event("a", 1, lsn=1), event("b", 1, lsn=2), event("a", 2, lsn=3)]
    await archiver.keep(page)
    assert await archiver.erase(page[0].aggregate, kept=()) == 2
    await archiver.keep(page)
    assert await archiver.erase(page[0].aggregate, kept=()) == 0, (
        "it is empty, also after the page came again"
    )
    found = {(line["aggregateId"], line["sequence"]): line for line in all_lines(archive)}
    assert sorted(line["aggregateId"] for line in found.values() if "document" in line) == [
        page[1].aggregate.id
    ]
    emptied = found[page[2].aggregate.id, 2]
    assert (emptied["erased"], emptied["id"], emptied["action"]) == (True, page[2].id, page[2].action)


def test_the_event_that_names_nobody_is_kept() -> None:
    page = [event("a", 1, lsn=1), replace(event("a", 2, lsn=2), action="ContactDeletedEvent")]
    [blob] = blobs_of(page)
    body, number = without(blob.body, page[0].aggregate, kept=["ContactDeletedEvent"])
    assert number == 1
    assert ["document" in line for line in lines(body)] == [False, True]
    assert without(blob.body, AggregateKey("order", page[0].aggregate.id), kept=()) == (blob.body, 0)


def test_events_are_archived_where_a_setting_says_where() -> None:
    assert load_archive({"COSMOS": "x"}) is None
    found = load_archive({"ARCHIVE": "UseDevelopmentStorage=true", "ARCHIVE_CONTAINER": "audit"})
    assert isinstance(found, ArchiveSettings)
    assert (found.container, found.lease_prefix) == ("audit", "archive-relay-")
    found = load_archive({"ARCHIVE__blobServiceUri": "https://a.blob.core.windows.net"})
    assert found is not None
    assert (found.connection.address, found.container) == ("https://a.blob.core.windows.net", "event-archive")
    with pytest.raises(Misconfigured, match="ARCHIVE__blobServiceUri is not"):
        load_archive({"ARCHIVE__credential": "managedidentity"})
