"""A lease whose partition was split while nothing ran has one lag, measured in the partitions that took its place."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from operator import attrgetter

import pytest

from cosmos_changefeed import LeaseLag, estimate_lag, physical_partitions
from cosmos_changefeed.feed import FeedReader, identify
from cosmos_changefeed.lease import EpkRange
from devstack.testing import Service, eventually, running
from tests.changefeed.support import Containers, Recorder, containers_at

KEYS = [f"key {number}" for number in range(12)]


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos with two physical partitions, which the tests split."""
    folder = tmp_path_factory.mktemp("cosmos") / "data"
    with running(Service("cosmos", folder, "--faults", "--partitions=2")) as service:
        yield service


@pytest.fixture
async def containers(cosmos: Service) -> AsyncIterator[Containers]:
    async with containers_at(cosmos.address) as made:
        yield made


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


async def test_the_lag_of_a_split_range_is_the_sum_of_its_children(
    cosmos: Service, containers: Containers
) -> None:
    await processed(containers)
    await cosmos.faults.split(containers.database, "items", "0")
    assert [(each.lease_token, each.lag, each.waiting_since) for each in await lags(containers)] == [
        ("0", 0, None),
        ("1", 0, None),
    ]

    before = int(datetime.now(UTC).timestamp())
    for key in KEYS:
        await containers.write(key, 2)

    split, whole = await lags(containers)
    assert split.lag + whole.lag == len(KEYS)
    assert min(split.lag, whole.lag) > 0
    assert split.waiting_since is not None
    assert split.waiting_since.timestamp() >= before


async def test_the_oldest_change_of_all_children_says_since_when_the_range_waits(
    cosmos: Service, containers: Containers
) -> None:
    await processed(containers)
    for key in KEYS:
        await containers.write(key, 2)
    [whole, _] = await lags(containers)
    children = await cosmos.faults.split(containers.database, "items", "0")
    await cosmos.faults.split(containers.database, "items", children[0])  # grandchildren

    [split, _] = await lags(containers)

    assert whole.waiting_since is not None
    assert split.waiting_since == whole.waiting_since
    # Each child counts every transaction since the checkpoint that is not before its own first change.
    assert split.lag >= whole.lag


async def test_a_split_before_the_first_checkpoint(cosmos: Service, containers: Containers) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await containers.write(KEYS[0], 1)
    processor = recorder.processor(containers)
    await processor.start()
    await eventually(lambda: recorder.batches)
    await processor.stop(drain=False)
    await cosmos.faults.split(containers.database, "items", "0")
    await cosmos.faults.split(containers.database, "items", "1")

    found = await lags(containers)

    assert [each.lag for each in found] == [1, 1]
    assert sorted(each.waiting_since is None for each in found) == [False, True]


@pytest.mark.parametrize("lag", [{"seconds": 30.0}, {"seconds": 30.0, "share": 0.5}, {"versions": 1}])
async def test_a_split_range_is_measured_by_replicas_that_lag(
    cosmos: Service, containers: Containers, lag: dict[str, float]
) -> None:
    """An old read shows too little; it must not show nothing at all, or an error."""
    await processed(containers)
    await cosmos.faults.split(containers.database, "items", "0")
    for key in KEYS:
        await containers.write(key, 2)
    for container in ("items", "leases"):
        await cosmos.faults.add("lag", container=container, count=None, forSeconds=30.0, **lag)
    try:
        for _ in range(5):
            estimated = await estimate_lag(containers.monitored, containers.leases)
            assert {each.lease_token for each in estimated.leases} <= {"0", "1"}
    finally:
        await cosmos.faults.clear()
    await eventually(lambda: all_wait(containers))


async def all_wait(containers: Containers) -> bool:
    return sum(each.lag for each in await lags(containers)) == len(KEYS)


async def test_a_partition_that_is_split_while_the_partitions_are_asked_has_its_halves_told(
    cosmos: Service, containers: Containers
) -> None:
    """A relay that starts at that moment would else end."""

    class SplitMeanwhile(FeedReader):
        splits = 2

        async def ranges(self) -> list[EpkRange]:
            found = await super().ranges()
            if self.splits:
                self.splits -= 1
                [whole] = [
                    each
                    for each in await physical_partitions(containers.monitored)
                    if each.feed_range == found[0]
                ]
                await cosmos.faults.split(containers.database, "items", whole.id)
            return found

    reader = SplitMeanwhile(containers.monitored, await identify(containers.monitored))
    before = len(await physical_partitions(containers.monitored))
    found = await reader.partitions()
    assert len(found) == before + 2
    assert found == await physical_partitions(containers.monitored)
