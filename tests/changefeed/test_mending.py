"""Lease documents that somebody deletes are made again, and nothing is lost, whatever else fails meanwhile."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial

import pytest

from cosmos_changefeed import ChangeFeedProcessor, Clock, mend_leases
from cosmos_changefeed.feed import FeedReader
from cosmos_changefeed.lease import EpkRange, Lease
from cosmos_changefeed.lease_store import LeaseStore
from cosmos_changefeed.mending import LeaseMender
from devstack.testing import Service, eventually, running
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import MENDING, Containers, Recorder, containers_at

KEYS = [f"key {number}" for number in range(12)]
QUICK = replace(MENDING, expiration_interval=0.8, renew_interval=0.2)


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos with four physical partitions, which the tests split and break."""
    folder = tmp_path_factory.mktemp("cosmos") / "data"
    with running(Service("cosmos", folder, "--faults", "--partitions=4")) as service:
        yield service


@pytest.fixture
async def containers(cosmos: Service) -> AsyncIterator[Containers]:
    async with containers_at(cosmos.address) as made:
        yield made


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


async def test_leases_deleted_while_two_instances_run_are_made_again_and_nothing_is_lost(
    containers: Containers, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    async with (
        recorder.processor(containers, name="one", options=QUICK) as one,
        recorder.processor(containers, name="other", options=QUICK) as other,
    ):
        await eventually(lambda: shares(one, other) == [2, 2])
        await write_all(containers, 1)
        await eventually(lambda: has_all(recorder, 1))
        await containers.delete_leases()
        await write_all(containers, 2)
        await eventually(lambda: has_all(recorder, 1, 2))
        await eventually(lambda: shares(one, other) == [2, 2])
        await write_all(containers, 3)
        await eventually(lambda: has_all(recorder, 3))
        assert (one.missing_ranges, other.missing_ranges) == ([], [])

    assert first_seen(recorder) == {key: [1, 2, 3] for key in KEYS}
    assert caplog.text.count("it is made again and reads from the beginning") == 4


async def test_a_lease_that_is_missing_at_the_start_is_made_again_though_the_leases_were_made_once(
    containers: Containers,
) -> None:
    first, second = Recorder(), Recorder()
    async with first.processor(containers):
        await write_all(containers, 1)
        await eventually(lambda: has_all(first, 1))
    await containers.delete_leases("..2")
    await write_all(containers, 2)

    async with second.processor(containers, options=QUICK) as processor:
        await eventually(lambda: processor.missing_ranges)
        await eventually(lambda: has_all(second, 2))

    # Only the partition without a lease begins again.
    again = {each["partitionKey"] for each in second.items if each["sequence"] == 1}
    assert again
    assert again != set(KEYS)


async def test_a_split_of_a_partition_whose_lease_is_gone(cosmos: Service, containers: Containers) -> None:
    """The parent's lease is deleted and nobody is left to write the children's."""
    first, second = Recorder(), Recorder()
    async with first.processor(containers):
        await write_all(containers, 1)
        await eventually(lambda: has_all(first, 1))
    children = await cosmos.faults.split(containers.database, "items", "2")
    await containers.delete_leases("..2")
    await write_all(containers, 2)

    async with second.processor(containers, options=QUICK):
        await eventually(lambda: has_all(second, 2))
        assert await lease_names(containers) == {"..0", "..1", "..3", *(f"..{each}" for each in children)}


async def test_a_split_is_followed_and_not_mended(
    cosmos: Service, containers: Containers, caplog: pytest.LogCaptureFixture
) -> None:
    """The children's leases start where the parent's stood: nothing comes twice."""
    recorder = Recorder()
    async with recorder.processor(containers, options=QUICK) as processor:
        await write_all(containers, 1)
        await eventually(lambda: has_all(recorder, 1))
        await cosmos.faults.split(containers.database, "items", "0")
        await eventually(lambda: len(processor.owned_leases) == 5)
        begun = time.monotonic()
        await eventually(lambda: time.monotonic() - begun > 2 * QUICK.expiration_interval)
        await write_all(containers, 2)
        await eventually(lambda: has_all(recorder, 2))

    assert len(recorder.items) == 2 * len(KEYS)
    assert "missing" not in caplog.text


@pytest.mark.parametrize("kind", ["drop-after-commit", "fail-before-commit", "retry-with"])
async def test_a_lease_is_made_again_although_the_first_attempts_fail(
    cosmos: Service, containers: Containers, kind: str
) -> None:
    recorder = Recorder()
    async with recorder.processor(containers, options=QUICK) as processor:
        await eventually(lambda: len(processor.owned_leases) == 4)
        await cosmos.faults.add(kind, operation="create", container="leases", count=3)
        await containers.delete_leases()
        await eventually(partial(is_met, cosmos))
        await write_all(containers, 1)
        await eventually(lambda: has_all(recorder, 1))


async def test_an_instance_that_dies_while_it_makes_leases_again_is_followed_by_another(
    cosmos: Service, containers: Containers
) -> None:
    first, second = Recorder(), Recorder()
    dying = first.processor(containers, name="dying", options=QUICK)
    await dying.start()
    await eventually(lambda: len(dying.owned_leases) == 4)
    await cosmos.faults.add("slow", operation="create", container="leases", count=1, seconds=1.0)
    await containers.delete_leases()
    await eventually(partial(is_met, cosmos))
    assert dying._balancer is not None
    dying._balancer.cancel()  # inside the first creation
    await dying.stop(drain=False)
    await write_all(containers, 1)
    assert len(await lease_names(containers)) < 4

    async with second.processor(containers, name="next", options=QUICK):
        await eventually(lambda: has_all(second, 1))
    assert await lease_names(containers) == {"..0", "..1", "..2", "..3"}


async def is_met(cosmos: Service) -> bool:
    return await cosmos.faults.pending() == []


async def test_leases_are_deleted_while_replicas_of_the_leases_lag(
    cosmos: Service, containers: Containers
) -> None:
    recorder = Recorder()
    async with (
        recorder.processor(containers, name="one", options=QUICK) as one,
        recorder.processor(containers, name="other", options=QUICK) as other,
    ):
        await eventually(lambda: shares(one, other) == [2, 2])
        await cosmos.faults.add("lag", container="leases", seconds=1.5, share=0.5, count=None, forSeconds=4.0)
        await containers.delete_leases()
        await write_all(containers, 1)
        await write_all(containers, 2)
        await eventually(lambda: has_all(recorder, 1, 2))
        await cosmos.faults.clear()

    assert first_seen(recorder) == {key: [1, 2] for key in KEYS}


async def test_a_gap_that_was_not_there_at_every_look_is_left_alone(containers: Containers) -> None:
    """One query for the leases may miss those that a split writes meanwhile."""
    async with Recorder().processor(containers):
        pass
    reader = await FeedReader.open(containers.monitored)
    store = LeaseStore(containers.leases, monitored=reader.identity, prefix="")
    everything = await store.all()
    without = [each for each in everything if each.token != "2"]
    await containers.delete_leases("..2")
    now = 100.0
    mender = LeaseMender(reader, store, patience=10, clock=Clock(monotonic=lambda: now))

    for step, leases in ((0, without), (9, without), (11, everything), (12, without), (21, without)):
        now = 100.0 + step
        await mender.look(leases)
        assert await lease_names(containers) == {"..0", "..1", "..3"}

    now = 122.0
    await mender.look(without)
    assert await lease_names(containers) == {"..0", "..1", "..2", "..3"}
    assert mender.missing == []


async def test_without_a_processor_a_lease_is_made_again_after_a_second_look_and_not_before(
    memory: InMemory, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder().processor(memory, clock=memory.clock):
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


async def test_a_lease_that_is_there_keeps_its_checkpoint(containers: Containers) -> None:
    """Even a look that saw no lease at all changes none."""
    recorder = Recorder()
    async with recorder.processor(containers):
        await write_all(containers, 1)
        await eventually(lambda: has_all(recorder, 1))
    before = await containers.lease_documents()
    reader = await FeedReader.open(containers.monitored)
    store = LeaseStore(containers.leases, monitored=reader.identity, prefix="")
    mender = LeaseMender(reader, store, patience=0)

    await mender.look([])
    await mender.look([])

    assert await containers.lease_documents() == before


async def test_a_lease_of_an_old_version_covers_the_partition_that_it_names(containers: Containers) -> None:
    async with Recorder().processor(containers):
        pass
    reader = await FeedReader.open(containers.monitored)
    store = LeaseStore(containers.leases, monitored=reader.identity, prefix="")
    leases = [replace(each, feed_range=None) for each in await store.all() if each.token != "3"]
    [last] = [each.feed_range for each in await reader.partitions() if each.id == "3"]
    mender = LeaseMender(reader, store, patience=10)

    await mender.look([*leases, Lease("prefix..9", "9", None)])

    assert mender.missing == [last]
    assert isinstance(last, EpkRange)


async def test_all_documents_deleted_the_marker_too(containers: Containers) -> None:
    recorder = Recorder()
    async with recorder.processor(containers, options=QUICK) as processor:
        await eventually(lambda: len(processor.owned_leases) == 4)
        await containers.delete_leases(".info", "..0", "..1", "..2", "..3")
        async with recorder.processor(containers, name="late", options=QUICK):
            await write_all(containers, 1)
            await eventually(lambda: has_all(recorder, 1))
        await asyncio.wait_for(processor.stop(), 5)
