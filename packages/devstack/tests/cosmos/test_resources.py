"""Databases, containers, throughput, scripts, and what is refused."""

import json
from email.utils import formatdate
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from azure.cosmos import PartitionKey, ThroughputProperties, exceptions
from azure.cosmos.aio import ContainerProxy, CosmosClient, DatabaseProxy

from cosmos.raw import KEY, Raw, authorization, items_path
from devstack.cosmos.dispatch import Dispatcher
from devstack.cosmos.resources.service import Options
from devstack.cosmos.wire.auth import Authorizer
from devstack.cosmos.wire.faults import Faults
from devstack.testing import Service

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly


async def test_the_account_names_its_own_address_and_session_consistency(raw: Raw) -> None:
    reply = await raw.send("GET", "/")

    assert reply.body["userConsistencyPolicy"] == {"defaultConsistencyLevel": "Session"}
    endpoint = reply.body["writableLocations"][0]["databaseAccountEndpoint"]
    assert endpoint.startswith("http://127.0.0.1:")


async def test_databases_are_made_once_listed_and_deleted_with_what_they_hold(
    database: DatabaseProxy,
) -> None:
    client = database.client_connection
    await database.create_container("c", PartitionKey("/pk"))
    with pytest.raises(exceptions.CosmosResourceExistsError):
        await client.CreateDatabase({"id": database.id})

    await client.DeleteDatabase(f"dbs/{database.id}")

    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await database.get_container_client("c").read()
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await database.read()


async def test_containers_are_listed_queried_and_deleted(database: DatabaseProxy) -> None:
    for name in ("b", "a"):
        await database.create_container(name, PartitionKey("/pk"))
    with pytest.raises(exceptions.CosmosResourceExistsError):
        await database.create_container("a", PartitionKey("/pk"))

    assert [found["id"] async for found in database.list_containers()] == ["b", "a"]
    query = database.query_containers(
        "SELECT * FROM c WHERE c.id = @id", parameters=[{"name": "@id", "value": "a"}]
    )
    assert [found["id"] async for found in query] == ["a"]

    await database.delete_container("a")

    assert [found["id"] async for found in database.list_containers()] == ["b"]


async def test_a_containers_settings_are_kept_and_defaults_filled_in(database: DatabaseProxy) -> None:
    policy: Any = {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/secret/*"}],
        "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]],
    }
    plain = await (await database.create_container("plain", PartitionKey("/pk"))).read()
    own = await database.create_container("own", PartitionKey("/pk"), indexing_policy=policy, default_ttl=60)
    read = await own.read()

    assert plain["indexingPolicy"]["includedPaths"] == [{"path": "/*"}]
    assert plain["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 2}
    assert "defaultTtl" not in plain
    assert read["indexingPolicy"] == {
        **policy,
        "excludedPaths": [{"path": "/secret/*"}, {"path": '/"_etag"/?'}],
    }
    assert read["defaultTtl"] == 60


async def test_a_containers_key_and_id_stay(database: DatabaseProxy) -> None:
    await database.create_container("c", PartitionKey("/pk"))

    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await database.replace_container("c", PartitionKey("/other"))

    assert refused.value.status_code == 400


async def test_a_container_made_again_is_another_and_empty(
    database: DatabaseProxy, cosmos_server: Service
) -> None:
    first = await database.create_container("c", PartitionKey("/pk"))
    await first.create_item({"id": "1", "pk": "a"})
    old = await first.read()
    await database.delete_container("c")

    second = await database.create_container("c", PartitionKey("/pk"))

    assert (await second.read())["_rid"] != old["_rid"]
    # The first client still sends the old container's session token, as it would to the service.
    async with CosmosClient(cosmos_server.address, KEY) as client:
        fresh = client.get_database_client(database.id).get_container_client("c")
        assert [item async for item in fresh.read_all_items()] == []


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/a/b", {"a": {"b": "key"}}),
        ('/"a/b"', {"a/b": "key"}),
        ("/a/'b c'", {"a": {"b c": "key"}}),
        ('/"le\\"vel"/x', {'le"vel': {"x": "key"}}),
    ],
)
async def test_a_partition_key_path_may_be_nested_and_quoted(
    database: DatabaseProxy, raw: Raw, path: str, document: dict[str, Any]
) -> None:
    made = await database.create_container("c", PartitionKey(path))
    headers = {"x-ms-documentdb-partitionkey": '["key"]'}

    right = await raw.send("POST", items_path(made), headers=headers, body={"id": "1", **document})
    wrong = await raw.send("POST", items_path(made), headers=headers, body={"id": "2", "a": "key"})

    assert (right.status, wrong.status) == (201, 400)


IMPOSSIBLE: list[tuple[Any, str]] = [
    ({"id": "c"}, "partition key"),
    ({"id": "c", "partitionKey": {"paths": []}}, "no path"),
    ({"id": "c", "partitionKey": {"paths": ["pk"]}}, "must start with '/'"),
    ({"id": "c", "partitionKey": {"paths": ["/a//b"]}}, "must start with '/'"),
    ({"id": "c", "partitionKey": {"paths": ['/"a']}}, "must start with '/'"),
    ({"id": "c", "partitionKey": {"paths": [5]}}, "must start with '/'"),
    ({"id": "c", "partitionKey": {"paths": ["/a", "/b"]}}, "Too many partition key paths"),
    ({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Range"}}, "kind"),
    ({"id": "c" * 300, "partitionKey": {"paths": ["/pk"]}}, "'255' characters"),
    (
        {
            "id": "c",
            "partitionKey": {"paths": ["/pk"]},
            "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/x"]}]},
        },
        "unique",
    ),
    (
        {
            "id": "c",
            "partitionKey": {"paths": ["/pk"]},
            "computedProperties": [{"name": "x", "query": "y"}],
        },
        "computed",
    ),
    (
        {
            "id": "c",
            "partitionKey": {"paths": ["/pk"]},
            "indexingPolicy": {"includedPaths": [{"path": "/a/?"}]},
        },
        "mandatory indexing path",
    ),
]


async def test_a_container_that_cannot_be_is_400(database: DatabaseProxy, raw: Raw) -> None:
    for body, says in IMPOSSIBLE:
        reply = await raw.send("POST", f"/dbs/{database.id}/colls", body=body)

        assert reply.status == 400
        assert says in reply.body["message"]


async def test_throughput_is_read_and_replaced(database: DatabaseProxy) -> None:
    manual = await database.create_container("manual", PartitionKey("/pk"), offer_throughput=500)
    scaled = await database.create_container(
        "scaled", PartitionKey("/pk"), offer_throughput=ThroughputProperties(auto_scale_max_throughput=2000)
    )

    assert (await manual.get_throughput()).offer_throughput == 500
    assert (await scaled.get_throughput()).auto_scale_max_throughput == 2000
    await manual.replace_throughput(600)
    assert (await manual.get_throughput()).offer_throughput == 600
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await manual.replace_throughput(100)
    assert refused.value.status_code == 400


@pytest.mark.parametrize(("throughput", "partitions"), [(None, 1), (10_000, 1), (10_100, 2), (30_000, 5)])
async def test_throughput_decides_on_the_physical_partitions(
    database: DatabaseProxy, throughput: int | None, partitions: int
) -> None:
    made = await database.create_container("c", PartitionKey("/pk"), offer_throughput=throughput)

    assert len([part async for part in made.read_feed_ranges()]) == partitions


async def test_more_throughput_than_the_partitions_can_serve_splits_them(database: DatabaseProxy) -> None:
    made = await database.create_container("c", PartitionKey("/pk"), offer_throughput=400)
    for number in range(20):
        await made.create_item({"id": str(number), "pk": f"key-{number}"})

    await made.replace_throughput(10_000)
    before = len([part async for part in made.read_feed_ranges()])
    await made.replace_throughput(24_000)
    after = [part async for part in made.read_feed_ranges(force_refresh=True)]

    assert (before, len(after)) == (1, 3)
    assert len([item async for item in made.read_all_items()]) == 20


async def test_scripts_are_kept_but_not_run(container: ContainerProxy) -> None:
    await container.scripts.create_stored_procedure({"id": "s", "body": "function () {}"})

    assert (await container.scripts.get_stored_procedure("s"))["body"] == "function () {}"
    with pytest.raises(exceptions.CosmosHttpResponseError) as execution:
        await container.scripts.execute_stored_procedure("s", partition_key="a")
    with pytest.raises(exceptions.CosmosHttpResponseError) as trigger:
        await container.create_item({"id": "1", "pk": "a"}, pre_trigger_include="t")
    assert (execution.value.status_code, trigger.value.status_code) == (400, 400)
    assert [item async for item in container.read_all_items()] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("DELETE", "/dbs", 405),
        ("PUT", "/dbs/x/colls/y/docs", 405),
        ("GET", "/dbs/x/users", 400),
        ("GET", "/dbs/x/colls/y/nothing/at/all", 400),
        ("GET", "/_devstack/faults", 404),
    ],
)
async def test_what_is_not_served_is_refused(raw: Raw, method: str, path: str, status: int) -> None:
    reply = await raw.send(method, path)

    assert reply.status == status
    assert set(reply.body) == {"code", "message"}


async def test_names_in_links_are_decoded(database: DatabaseProxy) -> None:
    made = await database.create_container("a b+ü%41", PartitionKey("/pk"))
    await made.create_item({"id": "x y+%2F'", "pk": "a"})

    assert (await made.read_item("x y+%2F'", "a"))["pk"] == "a"


def test_a_defect_of_ours_is_a_500_in_the_services_form(caplog: pytest.LogCaptureFixture) -> None:
    broken: Any = SimpleNamespace(options=Options(), store=SimpleNamespace(chance=Random()))
    date = formatdate(usegmt=True)
    headers = {"x-ms-date": date, "authorization": authorization("GET", "dbs", "", date)}

    answer = Dispatcher(broken, Authorizer(), Faults()).serve("GET", "/dbs", headers, b"")

    assert answer.status == 500
    assert json.loads(answer.body or "")["code"] == "InternalServerError"
    assert "the request failed" in caplog.text
