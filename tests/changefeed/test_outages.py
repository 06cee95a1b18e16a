"""A processor goes on by itself and loses nothing while Cosmos DB is away, slow or fails."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from azure.core.exceptions import ServiceRequestError

from cosmos_changefeed.lease import Lease
from cosmos_changefeed.lease_store import LeaseStore
from devstack.testing import Service, eventually, running
from tests.changefeed.support import FAST, SHORT_LEASES, Containers, Recorder, containers_at


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos that the tests stop, pause and make fail."""
    folder = tmp_path_factory.mktemp("cosmos") / "data"
    with running(Service("cosmos", folder, "--faults")) as service:
        yield service


@pytest.fixture
async def containers(cosmos: Service) -> AsyncIterator[Containers]:
    async with containers_at(cosmos.address) as made:
        yield made


async def is_checkpointed(containers: Containers) -> bool:
    return (await containers.lease_documents())["..0"]["ContinuationToken"] is not None


async def test_the_processor_goes_on_when_cosmos_has_been_away(
    cosmos: Service, containers: Containers
) -> None:
    recorder = Recorder()
    async with recorder.processor(containers) as processor:
        await containers.write("a", 1)
        # Once it is checkpointed it is not delivered again, though the outage may outlast the lease.
        await eventually(lambda: is_checkpointed(containers))
        assert recorder.ids == ["a-1"]
        taking = processor.pulses[0]
        cosmos.kill()
        await eventually(lambda: recorder.errors)
        await eventually(lambda: taking.failed)
        cosmos.start()
        await containers.write("a", 2)
        await eventually(lambda: recorder.ids == ["a-1", "a-2"])
        await eventually(lambda: not taking.failed)
        assert processor.owned_leases == {"0"}


async def test_a_worker_that_cannot_renew_its_lease_stops_before_others_may_take_it(
    cosmos: Service, containers: Containers
) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await containers.write("a", 1)
    options = replace(FAST, expiration_interval=2.0, renew_interval=0.2)
    async with recorder.processor(containers, options=options):
        await eventually(lambda: recorder.batches)
        cosmos.pause()
        try:
            await asyncio.sleep(2.0)  # on this loop, so that what holds up the worker holds up the clock too
            await eventually(lambda: recorder.cancelled == 1, within=1.0)
        finally:
            cosmos.resume()
        recorder.go_on.set()
        await eventually(lambda: recorder.ids == ["a-1"])


async def test_a_lease_counts_from_the_question_for_it_and_not_from_a_late_answer(
    containers: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others take the lease by the time that is written in it."""
    recorder, acquire, asked = Recorder(), LeaseStore.acquire, asyncio.Event()
    recorder.go_on.clear()
    await containers.write("a", 1)

    async def answered_late(store: LeaseStore, lease: Lease, owner: str) -> Lease:
        asked.set()
        acquired = await acquire(store, lease, owner)
        await asyncio.sleep(1.5)
        return acquired

    async def refused(_store: LeaseStore, _lease: Lease) -> Lease:
        raise ServiceRequestError("the store is away")

    monkeypatch.setattr(LeaseStore, "acquire", answered_late)
    monkeypatch.setattr(LeaseStore, "renew", refused)
    async with recorder.processor(containers, options=replace(SHORT_LEASES, acquire_interval=60)):
        await asked.wait()
        await asyncio.sleep(2.0)
        await eventually(lambda: recorder.cancelled == 1, within=1.0, what="the lease expires after 2.0 s")
        recorder.go_on.set()


async def test_a_stop_does_not_wait_for_a_cosmos_that_does_not_answer(
    cosmos: Service, containers: Containers
) -> None:
    recorder = Recorder()
    processor = recorder.processor(containers)
    await processor.start()
    await eventually(lambda: processor.owned_leases)
    cosmos.pause()
    try:
        begun = time.monotonic()
        await processor.stop(drain=False)
        assert time.monotonic() - begun < 10
    finally:
        cosmos.resume()


async def test_a_checkpoint_that_fails_is_written_again_without_calling_the_handler_again(
    cosmos: Service, containers: Containers
) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await containers.write("a", 1)
    # No renewal comes in between and takes the faults that are meant for the checkpoint.
    async with recorder.processor(
        containers, options=replace(FAST, expiration_interval=20, renew_interval=10)
    ):
        await eventually(lambda: recorder.batches)
        # 449 is not retried by the SDK.
        await cosmos.faults.add("retry-with", count=2, operation="replace", container="leases")
        recorder.go_on.set()
        await eventually(lambda: checkpointed(containers))
        await containers.write("a", 2)
        await eventually(lambda: recorder.ids == ["a-1", "a-2"])

    assert [ids for ids, _ in recorder.batches] == [["a-1"], ["a-2"]]
    assert [getattr(error, "status_code", None) for _, error in recorder.errors] == [449, 449]


async def checkpointed(containers: Containers) -> bool:
    return (await containers.lease_documents())["..0"]["ContinuationToken"] is not None
