"""A processor goes on by itself and loses nothing while Cosmos DB is away or fails."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from devstack.testing import Service, eventually, running
from tests.changefeed.support import FAST, Containers, Recorder, containers_at


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos that the tests stop and make fail."""
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
        taking = processor.heartbeats[0]
        cosmos.kill()
        await eventually(lambda: recorder.errors)
        await eventually(lambda: taking.failed)
        cosmos.start()
        await containers.write("a", 2)
        await eventually(lambda: recorder.ids == ["a-1", "a-2"])
        await eventually(lambda: not taking.failed)
        assert processor.owned_leases == {"0"}


async def test_a_failed_checkpoint_is_retried_without_calling_the_handler_again(
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
