"""Reads while replicas lag: as old as asked for, never older than the client's token, and no write is answered so.

What is allowed in general is the business of ``test_lag_model``.
"""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos import exceptions
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos.raw import KEY, Raw, Reply, all_of, items_path
from devstack.testing import Service, eventually

PK = {"x-ms-documentdb-partitionkey": '["a"]'}
FEED = {"A-IM": "Incremental Feed", **PK}
BATCH = {**PK, "x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
EVERYTHING = {"seconds": 600, "count": None}
"""As old as can be: from before the container's first item."""


@pytest.fixture(autouse=True)
async def no_fault_is_left(faulty_raw: Raw) -> AsyncIterator[None]:
    yield
    await faulty_raw.administer("DELETE", "faults")


@pytest.fixture
async def elsewhere(faulty_server: Service, wide: ContainerProxy) -> AsyncIterator[ContainerProxy]:
    """The container as another client has it, which has seen nothing yet."""
    async with CosmosClient(faulty_server.address, KEY) as client:
        database, name = wide.container_link.split("/")[1::2]
        yield client.get_database_client(database).get_container_client(name)


async def lag(raw: Raw, **order: Any) -> None:
    reply = await raw.administer("POST", "faults", {"kind": "lag", **order})
    assert reply.status == 200


async def read(raw: Raw, container: ContainerProxy, item_id: str = "1", **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await raw.send("GET", f"{items_path(container)}/{item_id}", headers={**PK, **names})


def item(n: int, item_id: str = "1", **more: Any) -> dict[str, Any]:
    return {"id": item_id, "pk": "a", "n": n, **more}


async def ids(container: ContainerProxy) -> list[str]:
    return sorted([found["id"] async for found in container.read_all_items()])


async def test_another_client_reads_what_was_and_the_writer_reads_its_own_writes(
    wide: ContainerProxy, elsewhere: ContainerProxy, faulty_raw: Raw
) -> None:
    await wide.create_item(item(1))
    await wide.replace_item("1", item(2))
    await lag(faulty_raw, versions=1, count=None)

    assert (await elsewhere.read_item("1", "a"))["n"] == 1
    assert (await wide.read_item("1", "a"))["n"] == 2


async def test_queries_and_lists_are_as_old_as_reads(
    wide: ContainerProxy, elsewhere: ContainerProxy, faulty_raw: Raw
) -> None:
    await wide.create_item(item(1))
    await wide.create_item(item(1, "2"))
    await wide.delete_item("1", "a")
    await lag(faulty_raw, versions=1, count=None)

    for query in ("SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.id"):
        assert await all_of(elsewhere.query_items(query, partition_key="a")) == ["1", "2"]
        assert await all_of(wide.query_items(query, partition_key="a")) == ["2"]
    assert await all_of(elsewhere.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="a")) == [2]
    assert await ids(elsewhere) == ["1", "2"]


async def test_a_lagging_read_gives_404_and_the_lsn_of_what_the_replica_has(
    wide: ContainerProxy, elsewhere: ContainerProxy, faulty_raw: Raw
) -> None:
    created = await wide.create_item(item(1))
    await lag(faulty_raw, **EVERYTHING)

    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await elsewhere.read_item("1", "a")
    missing = await read(faulty_raw, wide)

    assert (missing.status, missing.sub_status) == (404, None)
    assert int(missing.headers["lsn"]) < int(created.get_response_headers()["lsn"])


async def test_a_session_token_is_the_least_seen_and_counts_for_its_partition(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    made = [await wide.upsert_item(item(n)) for n in range(3)]
    tokens = [one.get_response_headers()["x-ms-session-token"] for one in made]
    await lag(faulty_raw, **EVERYTHING)

    seen = [await read(faulty_raw, wide, x_ms_session_token=token) for token in tokens]
    partition, _, lsn = tokens[0].partition(":")
    other = await read(faulty_raw, wide, x_ms_session_token=f"{(int(partition) + 1) % 4}:{lsn}")

    assert [one.body["n"] for one in seen] == [0, 1, 2]
    assert [one.headers["x-ms-session-token"] for one in seen] == tokens
    assert other.status == 404
    ahead = f"{partition}:-1#{int(tokens[-1].rpartition('#')[2]) + 1}"
    refused = await read(faulty_raw, wide, x_ms_session_token=ahead)
    assert (refused.status, refused.sub_status) == (404, "1002")


async def test_a_conditional_read_compares_with_what_the_replica_has(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    old = (await wide.create_item(item(1)))["_etag"]
    new = (await wide.replace_item("1", item(2)))["_etag"]
    await lag(faulty_raw, versions=1, count=None)

    assert (await read(faulty_raw, wide, If_None_Match=old)).status == 304
    stale = await read(faulty_raw, wide, If_None_Match=new)
    assert (stale.status, stale.body["n"], stale.headers["etag"]) == (200, 1, old)


async def test_the_items_of_a_transaction_are_seen_together_or_not_at_all(
    wide: ContainerProxy, elsewhere: ContainerProxy, faulty_raw: Raw
) -> None:
    for n in (1, 2):
        await wide.execute_item_batch([("upsert", (item(n, "1"),)), ("upsert", (item(n, "2"),))], "a")
    await lag(faulty_raw, versions=1, count=None)

    assert await all_of(elsewhere.query_items("SELECT VALUE c.n FROM c", partition_key="a")) == [1, 1]


async def test_a_feed_of_a_replica_that_lags_ends_earlier_and_goes_on_later(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    for n in range(3):
        await wide.create_item(item(n, str(n)))
    await wide.upsert_item(item(9, "0"))
    path = items_path(wide)
    await lag(faulty_raw, versions=1)
    first = await faulty_raw.send("GET", path, headers=FEED)
    await lag(faulty_raw, versions=3)
    none = await faulty_raw.send("GET", path, headers={**FEED, "If-None-Match": first.headers["etag"]})
    rest = await faulty_raw.send("GET", path, headers={**FEED, "If-None-Match": none.headers["etag"]})

    assert [(one["id"], one["n"]) for one in first.body["Documents"]] == [("0", 0), ("1", 1), ("2", 2)]
    assert (none.status, none.headers["etag"]) == (304, first.headers["etag"])
    assert [(one["id"], one["n"]) for one in rest.body["Documents"]] == [("0", 9)]


async def test_no_write_is_answered_from_a_replica_and_each_token_is_new(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    etag = (await wide.create_item(item(1)))["_etag"]
    await wide.replace_item("1", item(2))
    await lag(faulty_raw, **EVERYTHING)
    path = items_path(wide)
    stale = [{"operationType": "Replace", "id": "1", "resourceBody": item(3), "ifMatch": etag}]
    refusals = [
        await faulty_raw.send("POST", path, headers=PK, body=item(3)),
        await faulty_raw.send("PUT", f"{path}/1", headers={**PK, "If-Match": etag}, body=item(3)),
        await faulty_raw.send("DELETE", f"{path}/none", headers=PK),
        await faulty_raw.send("POST", path, headers=BATCH, body=stale),
    ]

    assert [reply.status for reply in refusals] == [409, 412, 404, 207]
    assert refusals[3].body[0]["statusCode"] == 412
    for reply in refusals:
        token = reply.headers["x-ms-session-token"]
        assert (await read(faulty_raw, wide, x_ms_session_token=token)).body["n"] == 2
    inside = await faulty_raw.send("POST", path, headers=BATCH, body=[{"operationType": "Read", "id": "1"}])
    assert inside.body[0]["resourceBody"]["n"] == 2


async def test_through_the_sdk_a_refused_write_renews_the_token(
    wide: ContainerProxy, elsewhere: ContainerProxy, faulty_raw: Raw
) -> None:
    old = (await wide.create_item(item(1)))["_etag"]
    await wide.replace_item("1", item(2))
    await lag(faulty_raw, **EVERYTHING)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await elsewhere.read_item("1", "a")

    with pytest.raises(exceptions.CosmosAccessConditionFailedError) as one:
        await elsewhere.replace_item("1", item(3), etag=old, match_condition=MatchConditions.IfNotModified)
    with pytest.raises(exceptions.CosmosBatchOperationError) as batch:
        await elsewhere.execute_item_batch([("replace", ("1", item(3)), {"if_match_etag": old})], "a")

    for refused in (one.value, batch.value):
        token = refused.headers["x-ms-session-token"]
        assert (await elsewhere.read_item("1", "a", session_token=token))["n"] == 2


async def test_an_expiry_is_seen_late(wide: ContainerProxy, faulty_raw: Raw) -> None:
    created = (await wide.create_item(item(1, ttl=1))).get_response_headers()["x-ms-session-token"]

    async def is_gone() -> bool:
        return (await read(faulty_raw, wide)).status == 404

    await eventually(is_gone)
    await lag(faulty_raw, **EVERYTHING)
    assert (await read(faulty_raw, wide, x_ms_session_token=created)).body["n"] == 1
    assert (await faulty_raw.send("POST", items_path(wide), headers=PK, body=item(2))).status == 201


async def test_some_reads_come_from_replicas_that_lag_and_others_do_not(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    await wide.create_item(item(1))
    await wide.replace_item("1", item(2))
    await lag(faulty_raw, versions=1, share=0.5, count=None)

    seen = [(await read(faulty_raw, wide)).body["n"] for _ in range(60)]

    assert (2, 1) in list(itertools.pairwise(seen))  # one read is older than the one before it


async def test_a_lag_is_counted_for_its_container_and_hides_no_other_fault(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    await wide.create_item(item(1))
    await lag(faulty_raw, seconds=600, container="other")
    await lag(faulty_raw, seconds=600, container=wide.id, count=2)
    await faulty_raw.administer("POST", "faults", {"kind": "unavailable", "operation": "read"})

    statuses = [(await read(faulty_raw, wide)).status for _ in range(3)]

    assert statuses == [503, 404, 200]
    pending = (await faulty_raw.administer("GET", "faults")).body["faults"]
    assert [(fault["kind"], fault["container"]) for fault in pending] == [("lag", "other")]


async def test_on_demand_no_replica_has_what_a_token_asks_for(wide: ContainerProxy, faulty_raw: Raw) -> None:
    token = (await wide.create_item(item(1))).get_response_headers()["x-ms-session-token"]
    await faulty_raw.administer("POST", "faults", {"kind": "session-not-available"})

    without = await read(faulty_raw, wide)
    refused = await read(faulty_raw, wide, x_ms_session_token=token)

    assert without.status == 200
    assert (refused.status, refused.sub_status) == (404, "1002")
    assert (await read(faulty_raw, wide, x_ms_session_token=token)).status == 200
