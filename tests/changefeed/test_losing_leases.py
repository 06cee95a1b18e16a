"""An instance that loses a lease, at any moment, says so, leaves it alone and delivers nothing more of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError

from cosmos_changefeed import Clock, LeaseLost
from cosmos_changefeed.lease import Lease
from cosmos_changefeed.lease_store import LeaseStore
from devstack.testing import eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import FAST, Recorder

ONE_LOOK = replace(FAST, acquire_interval=10**6, expiration_interval=10**6, renew_interval=10**5)
"""After its first look an instance takes no lease, and it renews none: what it notices it notices by its work."""


async def held_lease(memory: InMemory) -> tuple[LeaseStore, Lease]:
    async with Recorder().processor(memory):
        pass
    store = await memory.lease_store()
    [lease] = await store.all()
    return store, await store.acquire(lease, "a")


async def delete(memory: InMemory, item: str) -> None:
    await memory.leases.delete_item(item, item)


async def write_again(memory: InMemory, item: str) -> None:
    """Nothing but its ETag is another one then."""
    [document] = [each async for each in memory.leases.read_all_items() if each["id"] == item]
    await memory.leases.replace_item(item, document)


Interference = Callable[[InMemory, str], Awaitable[None]]


def around_reads(
    memory: InMemory,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Interference | None = None,
    after: Interference | None = None,
) -> None:
    """Somebody does this to a document right before, or right after, it is read."""
    read = memory.leases.read_item

    async def noted(item: str, partition_key: str) -> Any:
        if before is not None:
            await before(memory, item)
        document = await read(item, partition_key)
        if after is not None:
            await after(memory, item)
        return document

    monkeypatch.setattr(memory.leases, "read_item", noted)


async def test_a_lease_whose_document_was_deleted_is_lost_and_not_made_again(memory: InMemory) -> None:
    store, lease = await held_lease(memory)
    await delete(memory, lease.id)
    with pytest.raises(LeaseLost, match=r"lease 0.*its document was deleted") as raised:
        await store.renew(lease)
    assert raised.value.lease_token == "0"
    assert set(await memory.lease_documents()) == {".info"}


async def test_a_lease_that_is_deleted_between_two_steps_of_a_write_is_lost(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lease = await held_lease(memory)
    await write_again(memory, lease.id)
    around_reads(memory, monkeypatch, before=delete)
    with pytest.raises(LeaseLost, match=r"lease 0.*its document was deleted"):
        await store.checkpoint(lease, '"7"')


async def test_a_stale_lock_made_anew_in_between_is_left_to_its_owner(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await memory.lease_store()
    late = replace(memory, clock=Clock(lambda: memory.clock.now() + timedelta(seconds=60)))
    async with store.initialization_lock() as first:
        around_reads(memory, monkeypatch, after=write_again)
        async with (await late.lease_store()).initialization_lock() as second:
            assert (first, second) == (True, False)
        assert set(await memory.lease_documents()) == {".lock"}


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens of the leases that were given back."""
    release, tokens = LeaseStore.release, list[str]()

    async def noted(store: LeaseStore, lease: Lease) -> None:
        tokens.append(lease.token)
        await release(store, lease)

    monkeypatch.setattr(LeaseStore, "release", noted)
    return tokens


async def test_a_lease_taken_during_a_batch_is_left_alone_at_its_end(
    memory: InMemory, released: list[str]
) -> None:
    """By then it may be this instance's again: to give it back would take it from its own worker."""
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)
    async with recorder.processor(memory, options=ONE_LOOK) as processor:
        await eventually(lambda: recorder.batches)
        store = await memory.lease_store()
        [lease] = await store.all()
        await store.acquire(lease, "thief")
        began = memory.clock.monotonic()
        recorder.go_on.set()
        await eventually(lambda: not processor.owned_leases)
        assert memory.clock.monotonic() - began < 1
        assert recorder.errors == []
    assert released == []
    taken = (await memory.lease_documents())["..0"]
    assert (taken["Owner"], taken["ContinuationToken"]) == ("thief", None)


async def test_a_lease_that_was_taken_before_a_stop_is_left_to_its_new_owner(memory: InMemory) -> None:
    """The instance has not noticed: that is no error."""
    recorder = Recorder()
    async with recorder.processor(memory, options=ONE_LOOK) as processor:
        await eventually(lambda: processor.owned_leases)
        store = await memory.lease_store()
        [lease] = await store.all()
        await store.acquire(lease, "thief")
    assert recorder.errors == []
    assert (await memory.lease_documents())["..0"]["Owner"] == "thief"


async def test_a_lease_that_cannot_be_released_is_reported_and_the_stop_ends(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise ServiceRequestError("the store is away")

    recorder = Recorder()
    async with recorder.processor(memory, options=ONE_LOOK) as processor:
        await eventually(lambda: processor.owned_leases)
        monkeypatch.setattr(LeaseStore, "release", refused)
    assert [(token, str(error)) for token, error in recorder.errors] == [("0", "the store is away")]
    assert processor.owned_leases == frozenset()


async def test_the_halves_of_a_split_are_taken_at_once(memory: InMemory) -> None:
    """The next look for leases may be far."""
    recorder = Recorder()
    async with recorder.processor(memory, options=ONE_LOOK) as processor:
        await eventually(lambda: processor.owned_leases == {"0"})
        memory.split("0")
        began = memory.clock.monotonic()
        await eventually(lambda: processor.owned_leases == {"1", "2"})
        assert memory.clock.monotonic() - began < 5


async def test_an_old_lease_without_a_range_gets_that_of_its_partition(memory: InMemory) -> None:
    first, second = Recorder(), Recorder()
    await memory.write("a", 1)
    async with first.processor(memory):
        await eventually(lambda: first.ids == ["a-1"])
    document = (await memory.lease_documents())["..0"]
    without = {name: value for name, value in document.items() if name not in {"FeedRange", "LeaseToken"}}
    await memory.leases.replace_item(document["id"], {**without, "PartitionId": "0"})
    await memory.write("a", 2)
    async with second.processor(memory):
        await eventually(lambda: second.ids == ["a-2"])
    assert second.errors == []
    assert (await memory.lease_documents())["..0"]["FeedRange"] == {"Range": {"min": "", "max": "FF"}}


async def test_a_split_that_could_not_be_followed_leaves_the_lease_free(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise ValueError("it cannot be deleted")

    recorder, heir = Recorder(), Recorder()
    async with recorder.processor(memory, options=ONE_LOOK) as processor:
        await eventually(lambda: processor.owned_leases)
        monkeypatch.setattr(LeaseStore, "delete", refused)
        memory.split("0")
        await eventually(lambda: recorder.errors)
        await eventually(partial(is_free, memory, "..0"))
        monkeypatch.undo()
        async with heir.processor(memory, name="heir", options=ONE_LOOK):
            await memory.write("a", 1)
            await eventually(lambda: heir.ids == ["a-1"])
    assert [(token, str(error)) for token, error in recorder.errors] == [("0", "it cannot be deleted")]


async def test_what_is_being_given_back_is_taken_by_no_look_of_the_same_instance(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the giving back would take it from the new worker."""
    acquire, release, delete_lease = LeaseStore.acquire, LeaseStore.release, LeaseStore.delete
    releasing, taken = asyncio.Event(), list[str]()
    refusals = iter([ValueError("it cannot be deleted")])

    async def acquired(store: LeaseStore, lease: Lease, owner: str) -> Lease:
        if releasing.is_set():
            taken.append(lease.token)
        return await acquire(store, lease, owner)

    async def released_late(store: LeaseStore, lease: Lease) -> None:
        releasing.set()
        await asyncio.sleep(1)  # of the two seconds that it may take
        releasing.clear()
        await release(store, lease)

    async def refused_once(store: LeaseStore, lease: Lease) -> None:
        for refusal in refusals:
            raise refusal
        await delete_lease(store, lease)

    monkeypatch.setattr(LeaseStore, "acquire", acquired)
    monkeypatch.setattr(LeaseStore, "release", released_late)
    monkeypatch.setattr(LeaseStore, "delete", refused_once)
    recorder = Recorder()
    async with recorder.processor(memory, options=FAST) as processor:
        await eventually(lambda: processor.owned_leases)
        memory.split("0")
        await eventually(lambda: processor.owned_leases == {"1", "2"})
        await memory.write("a", 1)
        await eventually(lambda: recorder.ids == ["a-1"])
        assert "0" not in taken


async def is_free(memory: InMemory, name: str) -> bool:
    return (await memory.lease_documents())[name]["Owner"] is None


async def test_a_lease_acquired_during_a_stop_is_released_and_delivers_nothing(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A split is followed at that moment: its halves are taken by no loop that the stop ends first."""
    acquire, asked, go_on = LeaseStore.acquire, asyncio.Event(), asyncio.Event()

    async def answered_late(store: LeaseStore, lease: Lease, owner: str) -> Lease:
        acquired = await acquire(store, lease, owner)
        if lease.token != "0":
            asked.set()
            await go_on.wait()
        return acquired

    monkeypatch.setattr(LeaseStore, "acquire", answered_late)
    recorder = Recorder()
    processor = recorder.processor(memory, options=ONE_LOOK)
    await processor.start()
    await eventually(lambda: processor.owned_leases)
    memory.split("0")
    await asked.wait()
    stopping = asyncio.create_task(processor.stop())
    await asyncio.sleep(5)
    go_on.set()
    await stopping
    for key in "abcdefgh":  # some in each half
        await memory.write(key, 1)
    await asyncio.sleep(5)

    documents = await memory.lease_documents()
    assert {name: document.get("Owner") for name, document in documents.items()} == {
        ".info": None,
        "..1": None,
        "..2": None,
    }
    assert (recorder.batches, recorder.errors) == ([], [])


async def test_a_lease_that_the_first_look_takes_during_a_stop_is_given_back(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, asked = LeaseStore.acquire, asyncio.Event()

    async def answered_late(store: LeaseStore, lease: Lease, owner: str) -> Lease:
        acquired = await acquire(store, lease, owner)
        asked.set()
        await asyncio.sleep(1)
        return acquired

    monkeypatch.setattr(LeaseStore, "acquire", answered_late)
    recorder = Recorder()
    await memory.write("a", 1)
    async with recorder.processor(memory):
        await asked.wait()
    assert (await memory.lease_documents())["..0"]["Owner"] is None
    assert (recorder.batches, recorder.errors) == ([], [])


async def test_a_stop_ends_a_look_for_leases_that_does_not_end_by_itself(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = asyncio.Event()

    async def unanswered(_: LeaseStore) -> list[Lease]:
        looking.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(LeaseStore, "all", unanswered)
    processor = Recorder().processor(memory)
    await processor.start()
    await looking.wait()
    began = memory.clock.monotonic()
    await processor.stop()
    await asyncio.sleep(1)
    assert "change feed balancer" not in {each.get_name() for each in asyncio.all_tasks()}
    assert memory.clock.monotonic() - began < 10
