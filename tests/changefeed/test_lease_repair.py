"""Lease documents that somebody deletes are made again, and nothing is lost, whatever else fails in between."""

import asyncio
import random
from collections import defaultdict
from dataclasses import replace
from functools import partial

import pytest

from cosmos_changefeed import ChangeFeedProcessor, Clock, mend_leases
from cosmos_changefeed.feed import FeedReader
from cosmos_changefeed.lease import EpkRange, Lease
from cosmos_changefeed.lease_repair import LeaseMender
from cosmos_changefeed.lease_store import LeaseStore
from devstack.http_in_memory import SentRequest
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import USUAL, Containers, Recorder

KEYS = [f"key {number}" for number in range(12)]
PARTITIONS = 4
MENDING = replace(USUAL, mend_leases=True)
"""As the relay worker: makes leases again that were missing for as long as a lease lasts."""


async def write_all(containers: Containers, sequence: int) -> None:
    for key in KEYS:
        await containers.write(key, sequence)


def has_all(recorder: Recorder, *sequences: int) -> bool:
    return {f"{key}-{number}" for key in KEYS for number in sequences} <= set(recorder.ids)


def first_seen(recorder: Recorder) -> dict[str, list[int]]:
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for item in recorder.items:
        found[item["partitionKey"]].setdefault(item["sequence"])
    return {key: list(sequences) for key, sequences in found.items()}


async def lease_names(containers: Containers) -> set[str]:
    return {name for name in await containers.lease_documents() if name.startswith("..")}


def shares(*processors: ChangeFeedProcessor) -> list[int]:
    return sorted(len(each.owned_leases) for each in processors)


async def test_leases_deleted_under_two_instances_are_remade_without_loss(
    memory: InMemory, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    async with (
        recorder.processor(memory, name="one", options=MENDING) as one,
        recorder.processor(memory, name="other", options=MENDING) as other,
    ):
        await eventually(lambda: shares(one, other) == [2, 2])
        await write_all(memory, 1)
        await eventually(lambda: has_all(recorder, 1))
        await memory.delete_leases()
        await write_all(memory, 2)
        await eventually(lambda: has_all(recorder, 1, 2))
        await eventually(lambda: shares(one, other) == [2, 2])
        await write_all(memory, 3)
        await eventually(lambda: has_all(recorder, 3))
        assert (one.missing_ranges, other.missing_ranges) == ([], [])

    assert first_seen(recorder) == {key: [1, 2, 3] for key in KEYS}
    assert caplog.text.count("it is made again and reads from the beginning") == 4


async def test_a_lease_missing_at_the_start_is_made_again(memory: InMemory) -> None:
    first, second = Recorder(), Recorder()
    async with first.processor(memory):
        await write_all(memory, 1)
        await eventually(lambda: has_all(first, 1))
    await memory.delete_leases("..2")
    await write_all(memory, 2)

    async with second.processor(memory, options=MENDING) as processor:
        await eventually(lambda: processor.missing_ranges)
        await eventually(lambda: has_all(second, 2))

    # Only the partition without a lease begins again.
    again = {each["partitionKey"] for each in second.items if each["sequence"] == 1}
    assert again
    assert again != set(KEYS)


@pytest.mark.long
async def test_a_split_of_a_partition_whose_lease_is_gone(memory: InMemory) -> None:
    """The parent's lease is deleted and nobody is left to write the children's."""
    first, second = Recorder(), Recorder()
    async with first.processor(memory):
        await write_all(memory, 1)
        await eventually(lambda: has_all(first, 1))
    children = memory.split("2")
    await memory.delete_leases("..2")
    await write_all(memory, 2)

    async with second.processor(memory, options=MENDING):
        await eventually(lambda: has_all(second, 2))
        assert await lease_names(memory) == {"..0", "..1", "..3", *(f"..{each}" for each in children)}


async def test_a_split_is_followed_and_not_mended(memory: InMemory, caplog: pytest.LogCaptureFixture) -> None:
    """The children's leases start where the parent's stood: nothing comes twice."""
    recorder = Recorder()
    async with recorder.processor(memory, options=MENDING) as processor:
        await write_all(memory, 1)
        await eventually(lambda: has_all(recorder, 1))
        memory.split("0")
        await eventually(lambda: len(processor.owned_leases) == 5)
        await asyncio.sleep(2 * MENDING.expiration_interval)
        await write_all(memory, 2)
        await eventually(lambda: has_all(recorder, 2))

    assert len(recorder.items) == 2 * len(KEYS)
    assert "missing" not in caplog.text


@pytest.mark.parametrize(
    "kind",
    ["lost_after", *(pytest.param(each, marks=pytest.mark.long) for each in ("lost_before", "retry_with"))],
)
async def test_a_lease_is_made_again_although_the_first_attempts_fail(memory: InMemory, kind: str) -> None:
    recorder = Recorder()
    async with recorder.processor(memory, options=MENDING) as processor:
        await eventually(lambda: len(processor.owned_leases) == 4)
        memory.troubles.creations += [kind] * 3
        await memory.delete_leases()
        await eventually(lambda: not memory.troubles.creations)
        await write_all(memory, 1)
        await eventually(lambda: has_all(recorder, 1))


async def test_another_instance_goes_on_after_one_that_died_making_leases(memory: InMemory) -> None:
    first, second = Recorder(), Recorder()
    dying = first.processor(memory, name="dying", options=MENDING)
    await dying.start()
    await eventually(lambda: len(dying.owned_leases) == 4)
    memory.troubles.creations.append("silent")
    await memory.delete_leases()
    await eventually(lambda: not memory.troubles.creations)
    assert dying._balancer is not None
    dying._balancer.cancel()  # inside the first creation
    await dying.stop(drain=False)
    await write_all(memory, 1)
    assert len(await lease_names(memory)) < 4

    async with second.processor(memory, name="next", options=MENDING):
        await eventually(lambda: has_all(second, 1))
    assert await lease_names(memory) == {"..0", "..1", "..2", "..3"}


@pytest.mark.long
async def test_leases_are_deleted_while_replicas_of_the_leases_lag(memory: InMemory) -> None:
    recorder = Recorder()
    async with (
        recorder.processor(memory, name="one", options=MENDING) as one,
        recorder.processor(memory, name="other", options=MENDING) as other,
    ):
        await eventually(lambda: shares(one, other) == [2, 2])
        chance, began = random.Random(1), memory.clock.monotonic()

        def lag(request: SentRequest) -> float | None:
            lags = "/colls/leases/" in request.path and memory.clock.monotonic() < began + 240
            return 90 if lags and chance.random() < 0.5 else None

        memory.troubles.lag = lag
        await memory.delete_leases()
        await write_all(memory, 1)
        await write_all(memory, 2)
        await eventually(lambda: has_all(recorder, 1, 2))

    assert first_seen(recorder) == {key: [1, 2] for key in KEYS}


async def test_a_gap_that_was_not_there_at_every_look_is_left_alone(memory: InMemory) -> None:
    """One query for the leases may miss those that a split writes during it."""
    async with Recorder().processor(memory):
        pass
    reader = await FeedReader.open(memory.monitored)
    store = LeaseStore(memory.leases, monitored=reader.identity, prefix="")
    everything = await store.all()
    without = [each for each in everything if each.token != "2"]
    await memory.delete_leases("..2")
    now = 100.0
    mender = LeaseMender(reader, store, patience=10, clock=Clock(monotonic=lambda: now))

    for step, leases in ((0, without), (9, without), (11, everything), (12, without), (21, without)):
        now = 100.0 + step
        await mender.look(leases)
        assert await lease_names(memory) == {"..0", "..1", "..3"}

    now = 122.0
    await mender.look(without)
    assert await lease_names(memory) == {"..0", "..1", "..2", "..3"}
    assert mender.missing == []


@pytest.mark.parametrize("memory", [1], indirect=True)
async def test_mend_leases_remakes_a_missing_lease_only_after_a_second_look(
    memory: InMemory, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder().processor(memory):
        pass
    mend = partial(mend_leases, memory.monitored, memory.leases, patience=60, clock=memory.clock)
    began = memory.clock.monotonic()
    await mend()
    assert memory.clock.monotonic() - began < 5, "none was missing"
    await memory.delete_leases()
    mending = asyncio.create_task(mend())
    await asyncio.sleep(55)
    assert await lease_names(memory) == set()
    await mending
    assert await lease_names(memory) == {"..0"}
    assert "lease 0 was missing, so nothing of its partition was delivered; it is made again" in caplog.text


async def test_a_lease_that_is_there_keeps_its_checkpoint(memory: InMemory) -> None:
    """Even a look that saw no lease at all changes none."""
    recorder = Recorder()
    async with recorder.processor(memory):
        await write_all(memory, 1)
        await eventually(lambda: has_all(recorder, 1))
    before = await memory.lease_documents()
    reader = await FeedReader.open(memory.monitored)
    store = LeaseStore(memory.leases, monitored=reader.identity, prefix="")
    mender = LeaseMender(reader, store, patience=0)

    await mender.look([])
    await mender.look([])

    assert await memory.lease_documents() == before


async def test_a_lease_of_an_old_version_covers_the_partition_that_it_names(memory: InMemory) -> None:
    async with Recorder().processor(memory):
        pass
    reader = await FeedReader.open(memory.monitored)
    store = LeaseStore(memory.leases, monitored=reader.identity, prefix="")
    leases = [replace(each, feed_range=None) for each in await store.all() if each.token != "3"]
    [last] = [each.feed_range for each in await reader.partitions() if each.id == "3"]
    mender = LeaseMender(reader, store, patience=10)

    await mender.look([*leases, Lease("prefix..9", "9", None)])

    assert mender.missing == [last]
    assert isinstance(last, EpkRange)


@pytest.mark.long
async def test_all_documents_deleted_the_marker_too(memory: InMemory) -> None:
    recorder = Recorder()
    async with recorder.processor(memory, options=MENDING) as processor:
        await eventually(lambda: len(processor.owned_leases) == 4)
        await memory.delete_leases(".info", "..0", "..1", "..2", "..3")
        async with recorder.processor(memory, name="late", options=MENDING):
            await write_all(memory, 1)
            await eventually(lambda: has_all(recorder, 1))
        await asyncio.wait_for(processor.stop(), 5)
