"""Faults on demand: each does what it says, as often and to whom it was asked for."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos.raw import KEY, Raw, Reply, items_path
from devstack.cosmos.protocol.errors import CosmosError
from devstack.cosmos.wire.budget import Budget
from devstack.testing import Service, eventually, running

PK = {"x-ms-documentdb-partitionkey": '["a"]'}


@pytest.fixture(autouse=True)
async def no_fault_is_left(faulty_raw: Raw) -> AsyncIterator[None]:
    yield
    await faulty_raw.administer("DELETE", "faults")


async def create(raw: Raw, container: ContainerProxy, item_id: str = "1") -> Reply:
    return await raw.send("POST", items_path(container), headers=PK, body={"id": item_id, "pk": "a"})


async def stored(container: ContainerProxy) -> list[str]:
    return sorted([item["id"] async for item in container.read_all_items()])


@pytest.mark.parametrize(("kind", "left"), [("fail-before-commit", []), ("drop-after-commit", ["1"])])
async def test_a_lost_answer_leaves_nothing_or_everything(
    wide: ContainerProxy, faulty_raw: Raw, kind: str, left: list[str]
) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": kind, "operation": "create"})

    with pytest.raises(aiohttp.ClientConnectionError):
        await create(faulty_raw, wide)

    assert await stored(wide) == left


@pytest.mark.parametrize(
    ("kind", "status", "sub_status"),
    [
        ("throttle", 429, "3200"),
        ("retry-with", 449, None),
        ("unavailable", 503, None),
        ("refuse", 400, None),
        ("unauthorized", 401, None),
        ("write-forbidden", 403, "3"),
    ],
)
async def test_an_error_on_demand_comes_as_often_as_asked(
    wide: ContainerProxy, faulty_raw: Raw, kind: str, status: int, sub_status: str | None
) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": kind, "count": 2, "retryAfterMs": 7})

    replies = [await create(faulty_raw, wide) for _ in range(3)]

    assert [reply.status for reply in replies] == [status, status, 201]
    assert replies[0].sub_status == sub_status
    if status == 429:
        assert replies[0].headers["x-ms-retry-after-ms"] == "7"


async def test_a_refusal_is_lost_as_any_other_answer(wide: ContainerProxy, faulty_raw: Raw) -> None:
    assert (await create(faulty_raw, wide)).status == 201
    await faulty_raw.administer("POST", "faults", {"kind": "drop-after-commit"})

    with pytest.raises(aiohttp.ClientConnectionError):
        await create(faulty_raw, wide)

    assert (await create(faulty_raw, wide)).status == 409


@pytest.mark.parametrize(
    ("headers", "operations", "status"),
    [
        ({}, {"id": "1", "pk": "a"}, 409),
        ({"x-ms-documentdb-is-upsert": "True", "If-Match": '"stale"'}, {"id": "1", "pk": "a"}, 412),
        (
            {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"},
            [{"operationType": "Read", "id": "none"}],
            207,
        ),
    ],
)
async def test_a_refusal_without_a_session_token_and_only_a_refusal(
    wide: ContainerProxy, faulty_raw: Raw, headers: dict[str, str], operations: Any, status: int
) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": "no-session-token", "count": 2})
    stored = await create(faulty_raw, wide)

    replies = [
        await faulty_raw.send("POST", items_path(wide), headers={**PK, **headers}, body=operations)
        for _ in range(2)
    ]

    assert (stored.status, "x-ms-session-token" in stored.headers) == (201, True)
    assert [(reply.status, "x-ms-session-token" in reply.headers) for reply in replies] == [
        (status, False),
        (status, True),
    ]


async def test_a_region_without_writes_can_be_read_and_the_sdk_retries_writes(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    await wide.create_item({"id": "1", "pk": "a"})
    await faulty_raw.administer("POST", "faults", {"kind": "write-forbidden", "count": None})
    refused = await create(faulty_raw, wide, "2")
    assert (refused.status, refused.sub_status) == (403, "3")
    assert await stored(wide) == ["1"]
    await faulty_raw.administer("DELETE", "faults")
    await faulty_raw.administer("POST", "faults", {"kind": "write-forbidden", "count": 1})

    await wide.execute_item_batch([("create", ({"id": "2", "pk": "a"},))], "a")

    assert (await faulty_raw.administer("GET", "faults")).body["faults"] == []
    assert await stored(wide) == ["1", "2"]


async def test_a_slow_answer_takes_its_time_and_holds_nobody_else_up(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": "slow", "seconds": 2.0, "operation": "create"})
    began = time.monotonic()
    slow = asyncio.create_task(create(faulty_raw, wide))

    await faulty_raw.send("GET", "/dbs")
    assert not slow.done()
    reply = await slow

    assert reply.status == 201
    assert time.monotonic() - began >= 2.0


async def test_a_late_request_is_carried_out_although_its_client_has_given_up(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": "late", "seconds": 1.0, "operation": "create"})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await create(faulty_raw, wide)
    assert await stored(wide) == []
    await eventually(lambda: stored(wide))


@pytest.mark.parametrize(
    "matches",
    [{"operation": "batch"}, {"method": "PUT"}, {"container": "other"}, {"path": "/dbs/*/colls/other/docs"}],
)
async def test_a_fault_meets_only_what_it_names(
    wide: ContainerProxy, faulty_raw: Raw, matches: dict[str, Any]
) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": "unavailable", **matches})

    assert (await create(faulty_raw, wide)).status == 201
    pending = (await faulty_raw.administer("GET", "faults")).body["faults"]
    assert [fault["kind"] for fault in pending] == ["unavailable"]


async def test_a_fault_meets_its_share_of_the_requests(wide: ContainerProxy, faulty_raw: Raw) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": "unavailable", "share": 0.5, "count": 20})

    statuses = [(await create(faulty_raw, wide, str(number))).status for number in range(100)]

    assert statuses.count(503) == 20
    assert 201 in statuses[:20], "all of the first twenty: one in a million"
    assert statuses[-1] == 201


@pytest.mark.parametrize(
    "body", [{}, {"kind": "nonsense"}, {"kind": "slow", "count": 0}, {"kind": "slow", "typo": 1}, []]
)
async def test_a_fault_that_cannot_be_is_400(faulty_raw: Raw, body: Any) -> None:
    reply = await faulty_raw.administer("POST", "faults", body)

    assert reply.status == 400
    assert reply.body["error"]


async def test_the_sdk_waits_and_goes_on_when_throttled(wide: ContainerProxy, faulty_raw: Raw) -> None:
    await faulty_raw.administer("POST", "faults", {"kind": "throttle", "count": 3, "retryAfterMs": 10})

    await wide.create_item({"id": "1", "pk": "a"})

    assert (await faulty_raw.administer("GET", "faults")).body["faults"] == []
    assert await stored(wide) == ["1"]


def test_a_budget_is_spent_and_comes_back() -> None:
    now = 100.0
    budget = Budget(10, lambda: now)
    budget.admit()
    budget.charge(25)

    with pytest.raises(CosmosError) as refused:
        budget.admit()
    assert refused.value.kind.status == 429
    wait = int(refused.value.headers["x-ms-retry-after-ms"])
    assert 1500 <= wait <= 1510
    now += wait / 1000
    budget.admit()


@pytest.fixture
def poor_server(tmp_path: Path) -> Iterator[Service]:
    folder = tmp_path / "data"
    with running(Service("cosmos", folder, "--ru-budget=100")) as service:
        yield service


async def test_clients_back_off_from_a_budget_and_get_through(poor_server: Service) -> None:
    async with CosmosClient(poor_server.address, KEY) as client:
        database = await client.create_database("d")
        container = await database.create_container("c", PartitionKey("/pk"))

        written = [await container.create_item({"id": str(number), "pk": "a"}) for number in range(30)]

    assert len(written) == 30
    assert any("x-ms-throttle-retry-count" in item.get_response_headers() for item in written)


async def test_a_clock_turned_back_changes_ts_and_not_the_order_of_the_feed(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    try:
        await create(faulty_raw, wide, "before")
        assert (await faulty_raw.administer("POST", "clock", {"ahead": -600})).status == 200
        await create(faulty_raw, wide, "after")
    finally:
        await faulty_raw.administer("POST", "clock", {"ahead": 0})
    feed = wide.query_items_change_feed(partition_key="a", start_time="Beginning")
    before, after = [item async for item in feed]
    assert (before["id"], after["id"]) == ("before", "after")
    assert before["_lsn"] < after["_lsn"]
    assert 590 <= before["_ts"] - after["_ts"] <= 600


async def test_the_account_says_that_it_takes_writes_in_several_regions(faulty_raw: Raw) -> None:
    for said in (True, False):
        await faulty_raw.administer("POST", "account", {"enableMultipleWriteLocations": said})
        answer = await faulty_raw.send("GET", "/")
        assert answer.body["enableMultipleWriteLocations"] is said
