"""The lag over a socket while the processor runs, is late, and is stopped."""

import time

from cosmos_changefeed import effective_key, estimate_lag
from devstack.testing import eventually
from tests.changefeed.support import Containers, Recorder


async def lag(containers: Containers) -> dict[str, int]:
    estimated = await estimate_lag(containers.monitored, containers.leases)
    assert estimated.missing == []
    return {each.lease_token: each.lag for each in estimated.leases}


async def test_without_leases_there_is_no_lag_to_tell(containers: Containers) -> None:
    estimated = await estimate_lag(containers.monitored, containers.leases)
    assert (estimated.leases, estimated.missing) == ([], ["0"])


async def test_before_the_first_checkpoint_the_lag_is_one(containers: Containers) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    for sequence in range(5):
        await containers.write("a", sequence)
    async with recorder.processor(containers):
        await eventually(lambda: recorder.batches)
        assert await lag(containers) == {"0": 1}
        recorder.go_on.set()
        await eventually(lambda: recorder.items)


async def test_the_lag_is_the_number_of_transactions_that_are_not_checkpointed(
    containers: Containers,
) -> None:
    recorder = Recorder()
    await containers.write("a", 0)
    async with recorder.processor(containers, name="owner"):
        await eventually(lambda: recorder.items)
        await eventually(lambda: is_zero(containers))
        [estimated] = (await estimate_lag(containers.monitored, containers.leases)).leases
        assert estimated.owner == "owner"
        assert estimated.waiting_since is None
        assert estimated.feed_range is not None
        assert estimated.feed_range.holds(await effective_key(containers.monitored, "a"))
        handled = estimated
    before = int(time.time())
    for sequence in range(1, 4):
        await containers.write("a", sequence)
    await containers.monitored.execute_item_batch(
        [("create", ({"id": f"b{number}", "partitionKey": "b"},)) for number in range(3)], "b"
    )

    # Three writes and one transaction of three.
    assert await lag(containers) == {"0": 4}
    [behind] = (await estimate_lag(containers.monitored, containers.leases)).leases
    assert behind.waiting_since is not None
    assert before <= behind.waiting_since.timestamp() <= time.time()
    assert behind.position is not None
    assert behind.position == handled.position
    assert handled.newest is not None
    assert behind.newest == handled.newest + 4


async def is_zero(containers: Containers) -> bool:
    return await lag(containers) == {"0": 0}
