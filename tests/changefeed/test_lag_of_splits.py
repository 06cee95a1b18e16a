"""A lease whose partition was split while nothing ran has one lag, measured in the partitions that took its place."""

import itertools
from collections.abc import Iterator
from operator import attrgetter

import pytest

from cosmos_changefeed import LeaseLag, estimate_lag
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import Containers, Recorder

KEYS = [f"key {number}" for number in range(12)]
PARTITIONS = 2


async def lags(containers: Containers) -> list[LeaseLag]:
    estimated = await estimate_lag(containers.monitored, containers.leases)
    assert estimated.missing == []
    return sorted(estimated.leases, key=attrgetter("lease_token"))


async def processed(containers: Containers) -> None:
    """One item of each key is handled and checkpointed, and the processor is stopped."""
    recorder = Recorder()
    for key in KEYS:
        await containers.write(key, 1)
    async with recorder.processor(containers):
        await eventually(lambda: len(recorder.items) == len(KEYS))
        await eventually(lambda: nothing_waits(containers))


async def nothing_waits(containers: Containers) -> bool:
    return all(each.lag == 0 for each in await lags(containers))


async def test_the_lag_of_a_split_range_is_the_sum_of_its_children(memory: InMemory) -> None:
    await processed(memory)
    memory.split("0")
    assert [(each.lease_token, each.lag, each.waiting_since) for each in await lags(memory)] == [
        ("0", 0, None),
        ("1", 0, None),
    ]

    before = int(memory.clock.now().timestamp())
    for key in KEYS:
        await memory.write(key, 2)

    split, whole = await lags(memory)
    assert split.lag + whole.lag == len(KEYS)
    assert min(split.lag, whole.lag) > 0
    assert split.waiting_since is not None
    assert split.waiting_since.timestamp() >= before


async def test_the_oldest_change_of_all_children_says_since_when_the_range_waits(memory: InMemory) -> None:
    await processed(memory)
    for key in KEYS:
        await memory.write(key, 2)
    [whole, _] = await lags(memory)
    children = memory.split("0")
    memory.split(children[0])  # grandchildren

    [split, _] = await lags(memory)

    assert whole.waiting_since is not None
    assert split.waiting_since == whole.waiting_since
    # Each child counts every transaction since the checkpoint that is not before its own first change.
    assert split.lag >= whole.lag


async def test_a_split_before_the_first_checkpoint(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write(KEYS[0], 1)
    processor = recorder.processor(memory)
    await processor.start()
    await eventually(lambda: recorder.batches)
    await processor.stop(drain=False)
    memory.split("0")
    memory.split("1")

    found = await lags(memory)

    assert [each.lag for each in found] == [1, 1]
    assert sorted(each.waiting_since is None for each in found) == [False, True]


@pytest.mark.parametrize(
    "lags", [itertools.repeat(True), itertools.cycle([True, False])], ids=["always", "at times"]
)
async def test_a_split_range_is_measured_by_replicas_that_lag(memory: InMemory, lags: Iterator[bool]) -> None:
    """An old read shows too little; it must not show nothing at all, or an error."""
    await processed(memory)
    memory.split("0")
    for key in KEYS:
        await memory.write(key, 2)
    memory.troubles.lag = lambda _: 600 if next(lags) else None
    for _ in range(5):
        estimated = await estimate_lag(memory.monitored, memory.leases)
        assert {each.lease_token for each in estimated.leases} <= {"0", "1"}
    memory.troubles.lag = lambda _: None
    await eventually(lambda: all_wait(memory))


async def all_wait(containers: Containers) -> bool:
    return sum(each.lag for each in await lags(containers)) == len(KEYS)
