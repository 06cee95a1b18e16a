"""Several instances share one feed: each lease has one owner, also after a crash and after a split."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_changefeed import ChangeFeedProcessor
from cosmos_changefeed.balancing import leases_to_take
from cosmos_changefeed.lease import Lease
from cosmos_changefeed.lease_store import LeaseStore
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import FAST, Containers, Recorder

PARTITIONS = 8
KEYS = [f"key {number}" for number in range(12)]
AFTER_SPLIT_OF_3 = {"0", "1", "2", "4", "5", "6", "7", "8", "9"}
"""While a split is followed the parent and one child may be owned: so many, but not these."""


def shares(processors: list[ChangeFeedProcessor]) -> list[int]:
    return sorted(len(processor.owned_leases) for processor in processors)


async def test_two_instances_that_start_at_once_create_the_leases_once(memory: InMemory) -> None:
    one, other = Recorder(), Recorder()
    processors = [
        one.processor(memory, name="one"),
        other.processor(memory, name="other"),
    ]

    await asyncio.gather(*(processor.start() for processor in processors))
    await eventually(lambda: shares(processors) == [4, 4])

    assert len(await memory.lease_documents()) == PARTITIONS + 1
    await asyncio.gather(*(processor.stop() for processor in processors))
    assert one.complaints == other.complaints == []


class Writer:
    """Writes the next item of each key, round and round, until it is asked to stop."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers
        self._stopped = False
        self.rounds = 0

    async def run(self) -> None:
        while not self._stopped:
            self.rounds += 1
            await asyncio.gather(*(self._containers.write(key, self.rounds) for key in KEYS))
            await asyncio.sleep(0.02)

    async def wait_for(self, rounds: int) -> None:
        """Until so many more rounds have begun."""
        wanted = self.rounds + rounds
        await eventually(lambda: self.rounds >= wanted)

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator["Writer"]:
        task = asyncio.create_task(self.run())
        try:
            yield self
        finally:
            self._stopped = True
            await task


async def leave_all_leases_to(containers: Containers, owner: str, *, renewed: datetime) -> None:
    """As an instance that died right after that renewal."""
    async with Recorder().processor(containers):
        documents = await containers.lease_documents()
    for name, document in documents.items():
        if name.startswith(".."):
            left = {**document, "Owner": owner, "timestamp": renewed.isoformat()}
            await containers.leases.replace_item(document["id"], left)


async def test_a_dead_instances_leases_are_taken_at_the_first_look_after_expiry(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in looks, which a busy machine makes later but not more: one is made each acquire interval."""
    looks: list[tuple[datetime, int]] = []

    def looked(leases: Sequence[Lease], *, now: datetime, **rest: Any) -> list[Lease]:
        taken = leases_to_take(leases, now=now, **rest)
        looks.append((now, len(taken)))
        return taken

    monkeypatch.setattr("cosmos_changefeed.processor.leases_to_take", looked)
    expired = memory.clock.now() + timedelta(seconds=3)
    await leave_all_leases_to(memory, "dead", renewed=expired - timedelta(seconds=FAST.expiration_interval))
    looks.clear()

    async with Recorder().processor(memory, name="survivor") as survivor:
        await eventually(lambda: len(survivor.owned_leases) == PARTITIONS)

    before = sum(taken for now, taken in looks if now <= expired)
    first, *_ = [taken for now, taken in looks if now > expired]
    assert before <= PARTITIONS // 2, "more than its share, while the other may be alive"
    assert first == PARTITIONS - before


async def lease_tokens(containers: Containers) -> set[str]:
    documents = await containers.lease_documents()
    return {document["LeaseToken"] for name, document in documents.items() if name.startswith("..")}


async def has_leases(containers: Containers, tokens: set[str]) -> bool:
    return await lease_tokens(containers) == tokens


async def test_after_a_split_the_leases_cover_the_parents_range(memory: InMemory) -> None:
    recorder = Recorder()
    for key in KEYS:
        await memory.write(key, 1)
    async with recorder.processor(memory, name="one") as one:
        await eventually(lambda: len(recorder.items) == len(KEYS))
        parent = (await memory.lease_documents())["..3"]
        memory.split("3")
        await eventually(lambda: one.owned_leases == AFTER_SPLIT_OF_3)

    leases = (await memory.lease_documents()).values()
    children = [each for each in leases if each.get("LeaseToken") not in {None, *map(str, range(PARTITIONS))}]
    children.sort(key=lambda lease: str(lease["FeedRange"]["Range"]["min"]))
    assert [each["LeaseToken"] for each in children] == ["8", "9"]
    assert children[0]["FeedRange"]["Range"]["min"] == parent["FeedRange"]["Range"]["min"]
    assert children[0]["FeedRange"]["Range"]["max"] == children[1]["FeedRange"]["Range"]["min"]
    assert children[1]["FeedRange"]["Range"]["max"] == parent["FeedRange"]["Range"]["max"]
    assert len(recorder.items) == len(KEYS)


async def test_a_lease_that_a_split_deleted_is_not_written_again(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nobody to give it back to: the write would only take the time of a stop."""
    release, released = LeaseStore.release, []

    async def noted(store: LeaseStore, lease: Lease) -> None:
        released.append(lease.token)
        await release(store, lease)

    monkeypatch.setattr(LeaseStore, "release", noted)
    async with Recorder().processor(memory) as processor:
        await eventually(lambda: len(processor.owned_leases) == PARTITIONS)
        memory.split("3")
        await eventually(lambda: processor.owned_leases == AFTER_SPLIT_OF_3)

    assert set(released) == AFTER_SPLIT_OF_3


async def test_a_split_whose_parent_delete_failed_is_followed_at_the_next_look(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, delete = Recorder(), LeaseStore.delete

    async def refused(*_: object) -> None:
        monkeypatch.setattr(LeaseStore, "delete", delete)
        raise CosmosHttpResponseError(status_code=400, message="refused")

    async with recorder.processor(memory) as processor:
        await eventually(lambda: len(processor.owned_leases) == PARTITIONS)
        monkeypatch.setattr(LeaseStore, "delete", refused)
        memory.split("3")
        await eventually(partial(has_leases, memory, AFTER_SPLIT_OF_3))
        await eventually(lambda: processor.owned_leases == AFTER_SPLIT_OF_3)
        assert [token for token, _ in recorder.errors] == ["3"]


async def test_a_split_while_no_instance_runs_is_followed_by_the_next(memory: InMemory) -> None:
    first, second = Recorder(), Recorder()
    for key in KEYS:
        await memory.write(key, 1)
    async with first.processor(memory):
        await eventually(lambda: len(first.items) == len(KEYS))
    for key in KEYS:
        await memory.write(key, 2)
    memory.split("2")

    async with second.processor(memory, name="b"):
        await eventually(lambda: len(second.items) == len(KEYS))

    assert sorted(second.ids) == sorted(f"{key}-2" for key in KEYS)
