"""The lease documents of one instance: their content, the conditions of each write, and the refused ones."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_changefeed import ChangeFeedProcessor, Clock, LeasesUnusable
from cosmos_changefeed.feed import identify
from devstack.settings import COSMOS_KEY
from devstack.testing import Service, eventually
from tests.changefeed.in_memory import InMemory
from tests.changefeed.support import Containers, Recorder


async def checkpointed(containers: Containers) -> bool:
    return (await containers.lease_documents())["..0"]["ContinuationToken"] is not None


async def test_the_lease_container_holds_what_the_dotnet_processor_would_write(
    containers: Containers,
) -> None:
    recorder = Recorder()
    await containers.write("a", 1)
    before = datetime.now(UTC)

    async with recorder.processor(containers, name="instance", prefix="relay-"):
        await eventually(lambda: checkpointed(containers))
        documents = await containers.lease_documents()

    assert set(documents) == {".info", "..0"}
    lease = documents["..0"]
    monitored = await containers.monitored.read()
    database_rid = monitored["_self"].split("/")[1]
    assert lease["id"] == f"relay-127.0.0.1_{database_rid}_{monitored['_rid']}..0"
    assert lease["version"] == 0
    assert lease["LeaseToken"] == "0"
    assert lease["FeedRange"] == {"Range": {"min": "", "max": "FF"}}
    assert lease["Owner"] == "instance"
    assert lease["ContinuationToken"] == f'"{recorder.items[-1]["_lsn"]}"'
    assert lease["properties"] == {}
    assert lease["Mode"] == "Incremental Feed"
    assert before <= datetime.fromisoformat(lease["timestamp"]) <= datetime.now(UTC)


async def test_a_lease_that_a_dotnet_processor_left_is_taken_over(containers: Containers) -> None:
    """Its documents are written by hand here; the first item is before its checkpoint."""
    probe = Recorder()
    await containers.write("a", 1)
    async with probe.processor(containers, prefix="probe"):
        await eventually(lambda: probe.ids == ["a-1"])
    await containers.write("a", 2)
    monitored = await containers.monitored.read()
    prefix = f"net127.0.0.1_{monitored['_self'].split('/')[1]}_{monitored['_rid']}"
    await containers.leases.create_item({"id": f"{prefix}.info"})
    await containers.leases.create_item(
        {
            "id": f"{prefix}..0",
            "version": 0,
            "_etag": None,
            "LeaseToken": "0",
            "FeedRange": {"Range": {"min": "", "max": "FF"}},
            "Owner": None,
            "ContinuationToken": f'"{probe.items[0]["_lsn"]}"',
            "properties": {},
            "timestamp": "2026-01-02T03:04:05.1234567Z",
            "Mode": "Incremental Feed",
        }
    )
    recorder = Recorder()

    async with recorder.processor(containers, prefix="net"):
        await eventually(lambda: recorder.ids == ["a-2"])


async def test_a_lease_that_another_took_is_given_up_at_once(memory: InMemory) -> None:
    recorder = Recorder()
    recorder.go_on.clear()
    await memory.write("a", 1)

    async with recorder.processor(memory) as processor:
        await eventually(lambda: recorder.batches)
        lease = (await memory.lease_documents())["..0"]
        future = datetime.now(UTC).replace(year=2100).isoformat()
        await memory.leases.replace_item(lease["id"], {**lease, "Owner": "thief", "timestamp": future})
        await eventually(lambda: recorder.cancelled)
        await eventually(lambda: not processor.owned_leases)

    stolen = (await memory.lease_documents())["..0"]
    assert (stolen["Owner"], stolen["ContinuationToken"]) == ("thief", None)


async def test_an_unusable_lease_is_reported_and_the_others_are_taken(memory: InMemory) -> None:
    """An old lease names its partition without its range, and the partition is gone."""
    async with Recorder().processor(memory):
        lease = (await memory.lease_documents())["..0"]
    orphan = {"id": lease["id"].replace("..0", "..7"), "LeaseToken": "7", "Owner": None, "properties": {}}
    await memory.leases.create_item(orphan)
    recorder = Recorder()
    await memory.write("a", 1)

    async with recorder.processor(memory):
        await eventually(lambda: recorder.ids == ["a-1"])
        await eventually(lambda: recorder.errors)

    assert {token for token, _ in recorder.errors} == {"7"}
    assert "its partition is gone" in str(recorder.errors[0][1])


async def test_a_lock_left_by_a_crash_does_not_block_for_ever(containers: Containers) -> None:
    """The lease container has no default TTL, so the lock's own is ignored."""
    monitored = await containers.monitored.read()
    prefix = f"127.0.0.1_{monitored['_self'].split('/')[1]}_{monitored['_rid']}"
    await containers.leases.create_item({"id": f"{prefix}.lock", "ttl": 30})
    recorder = Recorder()
    await containers.write("a", 1)
    ahead = timedelta()
    clock = Clock(now=lambda: datetime.now(UTC) + ahead)
    processor = recorder.processor(replace(containers, clock=clock))

    starting = asyncio.create_task(processor.start())
    await eventually(lambda: hasattr(processor, "_store"))
    await asyncio.wait([starting], timeout=0.3)
    assert not starting.done()
    ahead = timedelta(days=10_000)
    await starting
    ahead = timedelta()
    await eventually(lambda: recorder.ids == ["a-1"])
    await processor.stop()
    assert ".lock" not in await containers.lease_documents()


async def test_a_lease_container_with_another_partition_key_is_refused(memory: InMemory) -> None:
    processor = ChangeFeedProcessor(memory.monitored, memory.monitored, Recorder(), instance_name="a")

    with pytest.raises(LeasesUnusable, match="partition key /id"):
        await processor.start()


async def test_leases_of_another_mode_are_refused(memory: InMemory) -> None:
    async with Recorder().processor(memory):
        lease = (await memory.lease_documents())["..0"]
    current = (await memory.lease_documents())["..0"]
    await memory.leases.replace_item(lease["id"], {**current, "Mode": "Full-Fidelity Feed"})

    with pytest.raises(LeasesUnusable, match="Full-Fidelity Feed"):
        await Recorder().processor(memory).start()


async def test_the_host_in_lease_names_is_lower_case_as_in_dotnet(
    cosmos_server: Service, containers: Containers
) -> None:
    """With another spelling of the endpoint there would be a second set of leases, and each change would come twice."""
    upper = cosmos_server.address.replace("127.0.0.1", "LocalHost")
    async with CosmosClient(upper, COSMOS_KEY) as client:
        monitored = client.get_database_client(containers.database).get_container_client("items")
        assert (await identify(monitored)).account_host == "localhost"
