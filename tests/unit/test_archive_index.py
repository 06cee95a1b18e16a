"""Where an aggregate's archived events are is found by one list of names, and what was erased is not found."""

import random
from datetime import UTC, datetime

import pytest

from cosmos_outbox.outbox import archive_index
from cosmos_outbox.outbox.archive import MARKS, Archiver, Erasure
from cosmos_outbox.outbox.archive_index import INDEX, ArchiveIndex, Looked
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.originals import AsDelivered
from cosmos_outbox.testing.simulation.archive import SimulatedArchive
from tests.support.feed import event_document, poison_document, read

MAY_4 = int(datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp())
DAY = 86_400


def event(contact: str, sequence: int, *, lsn: int = 1, at: int = MAY_4) -> OutboxEvent:
    found = read({**event_document(contact, sequence), "_ts": at, "_lsn": lsn})
    assert isinstance(found, OutboxEvent)
    return found


class Counting(SimulatedArchive):
    lists: int = 0
    reads: int = 0

    async def names(self, prefix: str) -> list[str]:
        self.lists += 1
        return await super().names(prefix)

    async def read(self, name: str, but: str = "") -> tuple[bytes, str] | None:
        self.reads += name != MARKS
        return await super().read(name, but)


def indexed() -> tuple[Counting, Archiver]:
    archive = Counting()
    return archive, Archiver(archive, AsDelivered(), ArchiveIndex(archive))


async def look(archive: SimulatedArchive, of: OutboxEvent, *wanted: int) -> Looked:
    return await ArchiveIndex(archive).look(of.aggregate, of.partition, wanted)


async def test_of_many_days_the_blobs_of_one_aggregate_alone_are_read() -> None:
    archive, archiver = indexed()
    for day in range(30):
        at = MAY_4 + day * DAY
        others = [event(f"c{number}", day + 1, lsn=day, at=at) for number in range(3)]
        await archiver.keep([*others, event("a", day + 1, lsn=day, at=at)] if day % 10 == 0 else others)
    archive.lists = archive.reads = 0
    looked = await look(archive, event("a", 1), *range(1, 22))
    of_it = event("a", 1).aggregate.id
    assert {place: line["aggregateId"] for place, line in looked.lines.items()} == {
        1: of_it,
        11: of_it,
        21: of_it,
    }
    assert (looked.down_to, archive.lists, archive.reads) == (1, 1, 3)


async def test_an_entry_names_nobody_and_holds_nothing() -> None:
    archive, archiver = indexed()
    await archiver.keep([event("somebody", 1), read({**poison_document("somebody", 7), "_ts": MAY_4})])
    [name] = [name for name in archive.contents if name.startswith(INDEX)]
    assert "somebody" not in name
    assert archive.contents[name][0] == b""
    assert name.endswith(next(each for each in archive.contents if each.startswith("2026/")))


async def test_one_look_reads_so_many_blobs_and_says_how_far_it_came() -> None:
    archive, archiver = indexed()
    for number in range(1, 31):
        await archiver.keep([event("a", number, lsn=number)])
    archive.reads = 0
    looked = await look(archive, event("a", 1), *range(1, 31))
    assert (sorted(looked.lines), looked.down_to) == ([*range(11, 31)], 11)
    assert archive.reads == archive_index.MOST_BLOBS
    assert sorted((await look(archive, event("a", 1), *range(1, 11))).lines) == [*range(1, 11)]


async def test_a_page_that_comes_again_in_other_bounds_tells_each_event_once_and_the_later() -> None:
    """An account that was restored numbers anew: the later event is the one that counts."""
    archive, archiver = indexed()
    await archiver.keep([event("a", 1, lsn=1), event("a", 2, lsn=2)])
    await archiver.keep([event("a", 1, lsn=1)])
    restored = event("a", 2, lsn=2, at=MAY_4 + DAY)
    await archiver.keep([restored])
    looked = await look(archive, restored, 1, 2)
    assert [looked.lines[place]["sequence"] for place in (1, 2)] == [1, 2]
    assert looked.lines[2]["id"] == restored.id


async def test_of_an_aggregate_that_was_erased_nothing_is_found() -> None:
    archive, archiver = indexed()
    erased, other = event("a", 1), event("b", 1)
    await archiver.keep([erased, other])
    before = {name: held for name, held in archive.contents.items() if name.startswith(INDEX)}
    await archiver.erase(Erasure(erased.aggregate, erased.partition, 100, datetime(2026, 6, 1, tzinfo=UTC)))
    assert (await look(archive, erased, 1)).lines == {}
    assert [*(await look(archive, other, 1)).lines] == [1]
    assert {name: held for name, held in archive.contents.items() if name.startswith(INDEX)} == before, (
        "whoever erases has nothing to do with entries"
    )


async def test_an_aggregate_of_the_same_id_in_another_partition_is_another_one() -> None:
    archive, archiver = indexed()
    await archiver.keep([event("a", 1)])
    found = await ArchiveIndex(archive).look(event("a", 1).aggregate, "another partition", [1])
    assert found.lines == {}


@pytest.mark.parametrize("fails", [0.3, 0.8])
async def test_what_has_an_entry_can_be_read_and_what_counts_as_done_has_one(fails: float) -> None:
    """Whichever answer is lost, at whichever step."""
    archive, archiver = indexed()
    archive.chance, archive.fails = random.Random(7), fails
    page = [event("a", number, lsn=number) for number in (1, 2, 3)]
    for _ in range(5_000):
        try:
            await archiver.keep(page)
            break
        except Unavailable:
            for name in (each for each in archive.contents if each.startswith(INDEX)):
                assert archive.contents["2026/" + name.partition("/2026/")[2]][0]
    archive.fails = 0.0
    assert sorted((await look(archive, page[0], 1, 2, 3)).lines) == [1, 2, 3]


async def test_an_archive_that_does_not_answer_is_away_and_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_index, "LOOK_SECONDS", 0.05)
    archive = SimulatedArchive(slow=1000)
    with pytest.raises(Unavailable, match="did not answer"):
        await look(archive, event("a", 1), 1)
