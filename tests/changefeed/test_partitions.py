"""The partitions are returned as they are now, or not at all."""

import asyncio

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_changefeed import EpkRange, FeedRangeGone, LeasesUnusable
from cosmos_changefeed.feed import FeedPage, FeedReader
from cosmos_changefeed.lease_store import LeaseStore
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import Recorder


async def test_after_a_split_the_ranges_are_those_of_the_halves(memory: InMemory) -> None:
    """Though the client has asked for them before, and read nothing since."""
    reader = await FeedReader.open(memory.monitored)
    assert await reader.ranges() == [EpkRange("", "FF")]
    memory.split("0")
    lower, upper = await reader.ranges()
    assert (lower.min, lower.max, upper.max) == ("", upper.min, "FF")


async def test_a_start_fails_without_a_lease_if_a_partition_has_no_name(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease of a partition without a name would be found by nobody."""

    async def nameless(*_: object, **__: object) -> FeedPage:
        return FeedPage([], '"0"', "", 0)

    monkeypatch.setattr(FeedReader, "read", nameless)
    with pytest.raises(LeasesUnusable, match="did not say which partition"):
        await Recorder().processor(memory).start()
    assert await memory.lease_documents() == {}


async def test_partitions_that_split_at_each_read_raise_feed_range_gone(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def split(*_: object, **__: object) -> FeedPage:
        raise FeedRangeGone("split")

    reader = await FeedReader.open(memory.monitored)
    monkeypatch.setattr(FeedReader, "read", split)
    with pytest.raises(FeedRangeGone):
        await reader.partitions()


async def test_a_partition_that_is_split_while_it_is_asked_is_its_halves(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, splits = FeedReader.ranges, ["0", "1"]

    async def split_in_between(reader: FeedReader) -> list[EpkRange]:
        found = await look(reader)
        if splits:
            memory.split(splits.pop(0))
        return found

    reader = await FeedReader.open(memory.monitored)
    monkeypatch.setattr(FeedReader, "ranges", split_in_between)
    assert [each.id for each in await reader.partitions()] == ["3", "4", "2"]


async def test_a_lease_that_cannot_be_deleted_after_a_split_is_not_taken_again(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity may not delete: the parent's lease stays, and its feed was delivered again with each take-over."""

    async def denied(*_: object) -> None:
        raise CosmosHttpResponseError(status_code=403, message="Forbidden")

    monkeypatch.setattr(LeaseStore, "delete", denied)
    recorder = Recorder()
    names = [f"k{number}" for number in range(20)]
    for name in names:
        await memory.write(name, 1)
    async with recorder.processor(memory):
        await eventually(lambda: recorder.has(20))
        memory.split("0")
        for name in names:
            await memory.write(name, 2)
        await eventually(lambda: recorder.has(40))
        await asyncio.sleep(3)
        assert len(recorder.ids) == 40
        assert len(recorder.errors) == 1
        assert "..0" in await memory.lease_documents()
