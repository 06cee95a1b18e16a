"""The lag while the processor runs, is late, and is stopped."""

import json

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_changefeed import FeedRangeGone, LeaseLag, effective_key, estimate_lag
from cosmos_changefeed.feed import FeedPage, FeedReader
from devstack.http_in_memory import SentRequest, StoreResponse
from devstack.settings import COSMOS_KEY
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import Containers, Recorder


async def lag(containers: Containers) -> dict[str, int]:
    estimated = await estimate_lag(containers.monitored, containers.leases)
    assert estimated.missing == []
    return {each.lease_token: each.lag for each in estimated.leases}


async def test_without_leases_there_is_no_lag_to_report(memory: InMemory) -> None:
    estimated = await estimate_lag(memory.monitored, memory.leases)
    assert (estimated.leases, estimated.missing) == ([], ["0"])


async def test_before_the_first_checkpoint_the_lag_is_one(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    for sequence in range(5):
        await memory.write("a", sequence)
    async with recorder.processor(memory):
        await eventually(lambda: recorder.batches)
        assert await lag(memory) == {"0": 1}
        recorder.go_on.set()
        await eventually(lambda: recorder.items)


async def test_the_lag_is_the_number_of_transactions_that_are_not_checkpointed(
    memory: InMemory,
) -> None:
    recorder = Recorder()
    await memory.write("a", 0)
    async with recorder.processor(memory, name="owner"):
        await eventually(lambda: recorder.items)
        await eventually(lambda: is_zero(memory))
        [estimated] = (await estimate_lag(memory.monitored, memory.leases)).leases
        assert estimated.owner == "owner"
        assert estimated.waiting_since is None
        assert estimated.feed_range is not None
        assert estimated.feed_range.holds(await effective_key(memory.monitored, "a"))
        handled = estimated
    before = int(memory.clock.now().timestamp())
    for sequence in range(1, 4):
        await memory.write("a", sequence)
    await memory.monitored.execute_item_batch(
        [("create", ({"id": f"b{number}", "partitionKey": "b"},)) for number in range(3)], "b"
    )

    # Three writes and one transaction of three.
    assert await lag(memory) == {"0": 4}
    [behind] = (await estimate_lag(memory.monitored, memory.leases)).leases
    assert behind.waiting_since is not None
    assert before <= behind.waiting_since.timestamp() <= memory.clock.now().timestamp()
    assert behind.position is not None
    assert behind.position == handled.position
    assert handled.newest is not None
    assert behind.newest == handled.newest + 4
    assert [each.partition for each in behind.partitions] == ["0"]


async def is_zero(containers: Containers) -> bool:
    return await lag(containers) == {"0": 0}


async def handled_and_stopped(memory: InMemory) -> LeaseLag:
    recorder = Recorder()
    await memory.write("a", 0)
    async with recorder.processor(memory):
        await eventually(lambda: recorder.items)
        await eventually(lambda: is_zero(memory))
    [found] = (await estimate_lag(memory.monitored, memory.leases)).leases
    return found


async def test_the_lag_of_a_lease_costs_the_read_of_one_change_however_many_wait(memory: InMemory) -> None:
    await handled_and_stopped(memory)
    for sequence in range(1, 6):
        await memory.write("a", sequence)
    answers: list[int] = []

    def count(_: float, request: SentRequest, answer: StoreResponse) -> None:
        if request.kind == "feed":
            answers.append(json.loads(answer.body)["_count"] if answer.body else 0)

    memory.cosmos.store.saw.append(count)
    assert await lag(memory) == {"0": 5}
    assert answers == [1]


class ReplicasOfTheFeedThatLag:
    """As far as a session lets them."""

    def fault_of(self, request: SentRequest, who: str) -> str | None:
        return None

    def lag_seconds(self, request: SentRequest) -> float | None:
        return 600 if request.kind == "feed" else None


async def test_with_a_session_token_a_replica_that_lags_hides_nothing_before_it(memory: InMemory) -> None:
    """The token is of another client: that of this one has not come as far."""
    await handled_and_stopped(memory)
    async with CosmosClient(memory.endpoint, COSMOS_KEY) as client:
        items = client.get_database_client(memory.database).get_container_client("items")
        written = await items.create_item({"id": "b", "partitionKey": "b"})
        token = written.get_response_headers()["x-ms-session-token"]
    memory.cosmos.store.meets = ReplicasOfTheFeedThatLag()
    assert await lag(memory) == {"0": 0}
    [found] = (await estimate_lag(memory.monitored, memory.leases, session_token=token)).leases
    assert (found.lag, found.waiting_since is None) == (1, False)


async def test_a_lease_without_a_range_has_the_lag_of_one_without_a_checkpoint(memory: InMemory) -> None:
    """An old .NET version wrote it; a processor that takes it over writes its range."""
    before = await handled_and_stopped(memory)
    document = (await memory.lease_documents())["..0"]
    await memory.leases.replace_item(document["id"], {**document, "FeedRange": None})
    estimated = await estimate_lag(memory.monitored, memory.leases)
    assert estimated.missing == []
    [found] = estimated.leases
    assert (found.lease_token, found.lag, found.waiting_since, found.feed_range) == ("0", 1, None, None)
    assert found.stored_at is not None
    assert before.stored_at is not None
    assert found.stored_at >= before.stored_at


async def test_an_estimate_during_endless_splits_says_try_again(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await handled_and_stopped(memory)

    async def split(*_: object, **__: object) -> FeedPage:
        raise FeedRangeGone("split")

    monkeypatch.setattr(FeedReader, "read", split)
    with pytest.raises(FeedRangeGone, match="try again"):
        await estimate_lag(memory.monitored, memory.leases)
