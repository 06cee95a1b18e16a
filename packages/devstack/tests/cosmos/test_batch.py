"""The transactional batch: all of it or nothing of it."""

from typing import Any

import pytest
from azure.cosmos import exceptions
from azure.cosmos.aio import ContainerProxy

from cosmos.raw import Raw, items_path
from devstack.testing import Service

BATCH = {
    "x-ms-documentdb-partitionkey": '["a"]',
    "x-ms-cosmos-is-batch-request": "True",
    "x-ms-cosmos-batch-atomic": "True",
}


def item(number: object, **more: Any) -> dict[str, Any]:
    return {"id": str(number), "pk": "a", **more}


async def ids(container: ContainerProxy) -> list[str]:
    return sorted([found["id"] async for found in container.read_all_items()])


async def failure(container: ContainerProxy, operations: list[Any]) -> exceptions.CosmosBatchOperationError:
    with pytest.raises(exceptions.CosmosBatchOperationError) as failed:
        await container.execute_item_batch(operations, "a")
    return failed.value


async def test_every_operation_takes_part(container: ContainerProxy) -> None:
    await container.create_item(item("old", n=1))
    await container.create_item(item("gone"))

    results = await container.execute_item_batch(
        [
            ("create", (item("new"),)),
            ("upsert", (item("up"),)),
            ("replace", ("old", item("old", n=2))),
            ("patch", ("old", [{"op": "incr", "path": "/n", "value": 1}])),
            ("read", ("old",)),
            ("delete", ("gone",)),
        ],
        "a",
    )

    assert [result["statusCode"] for result in results] == [201, 201, 200, 200, 200, 204]
    assert results[4]["resourceBody"]["n"] == 3
    assert results[4]["eTag"] == (await container.read_item("old", "a"))["_etag"]
    assert await ids(container) == ["new", "old", "up"]


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (("create", (item("there"),)), 409),
        (("replace", ("none", item("none"))), 404),
        (("delete", ("none",)), 404),
        (("read", ("none",)), 404),
        (("replace", ("there", item("there", n=2)), {"if_match_etag": '"stale"'}), 412),
        (("create", ({"id": "foreign", "pk": "b"},)), 400),
        (("create", (item("bad", ttl=0),)), 400),
        (("patch", ("there", [{"op": "remove", "path": "/none"}])), 400),
    ],
)
async def test_a_failing_operation_leaves_no_trace_of_the_others(
    container: ContainerProxy, bad: Any, status: int
) -> None:
    before = await container.create_item(item("there", n=1))
    token = before.get_response_headers()["x-ms-session-token"]
    operations = [
        ("create", (item("first"),)),
        ("upsert", (item("there", n=9),)),
        bad,
        ("create", (item("last"),)),
    ]
    if status in (409, 412):
        operations[1] = ("upsert", (item("second"),))

    error = await failure(container, operations)

    assert (error.error_index, error.status_code) == (2, status)
    codes = [result["statusCode"] for result in error.operation_responses]
    assert codes == [424, 424, status, 424]
    assert await ids(container) == ["there"]
    after = await container.read_item("there", "a")
    assert dict(after) == dict(before)
    assert after.get_response_headers()["x-ms-session-token"] == token
    assert [found["id"] async for found in container.query_items_change_feed(start_time="Beginning")] == [
        "there"
    ]


async def test_an_operation_sees_those_before_it(container: ContainerProxy) -> None:
    error = await failure(container, [("create", (item(1),)), ("create", (item(1),))])

    assert (error.error_index, error.status_code) == (1, 409)
    assert await ids(container) == []


async def test_if_match_holds_within_a_batch(container: ContainerProxy) -> None:
    created = await container.create_item(item(1))
    replace = ("replace", ("1", item(1, n=1)))

    await container.execute_item_batch(
        [(*replace, {"if_match_etag": created["_etag"]}), ("create", (item(2),))], "a"
    )
    error = await failure(
        container, [("create", (item(3),)), (*replace, {"if_match_etag": created["_etag"]})]
    )

    assert (error.error_index, error.status_code) == (1, 412)
    assert await ids(container) == ["1", "2"]


async def test_a_batch_is_one_transaction_of_the_log(container: ContainerProxy) -> None:
    first = await container.create_item(item(0))

    results = await container.execute_item_batch(
        [("create", (item(number),)) for number in range(1, 11)], "a"
    )

    assert int(results.get_response_headers()["lsn"]) == int(first.get_response_headers()["lsn"]) + 1
    charge = float(results.get_response_headers()["x-ms-request-charge"])
    assert charge == pytest.approx(sum(result["requestCharge"] for result in results))


@pytest.mark.parametrize(("count", "status"), [(0, 400), (100, 200), (101, 400)])
async def test_the_number_of_operations_is_limited(
    container: ContainerProxy, count: int, status: int
) -> None:
    operations: list[Any] = [("create", (item(number),)) for number in range(count)]

    if status == 200:
        await container.execute_item_batch(operations, "a")
    else:
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            await container.execute_item_batch(operations, "a")
        assert refused.value.status_code == 400
    assert len(await ids(container)) == (count if status == 200 else 0)


# The SDK hands aiohttp its large bodies as bytes.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_batch_over_two_megabytes_is_413(container: ContainerProxy) -> None:
    half: list[Any] = [("create", (item(number, text="x" * 1_100_000),)) for number in range(2)]

    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await container.execute_item_batch(half, "a")

    assert refused.value.status_code == 413
    assert await ids(container) == []


MALFORMED: list[Any] = [
    {"operationType": "Create", "resourceBody": item(1)},
    ["nonsense"],
    [{"operationType": "Merge", "id": "1"}],
    [{"operationType": "Create"}],
    [{"operationType": "Read"}],
    [{"operationType": "Read", "id": 5}],
]


async def test_a_malformed_batch_is_refused(container: ContainerProxy, raw: Raw) -> None:
    for body in MALFORMED:
        reply = await raw.send("POST", items_path(container), headers=BATCH, body=body)

        codes = [result["statusCode"] for result in reply.body] if reply.status == 207 else [reply.status]
        assert codes == [400]


async def test_a_batch_that_is_not_atomic_is_refused_not_guessed(container: ContainerProxy, raw: Raw) -> None:
    headers = {**BATCH, "x-ms-cosmos-batch-atomic": "False"}

    reply = await raw.send("POST", items_path(container), headers=headers, body=[])

    assert reply.status == 400
    assert "not support" in reply.body["message"]


@pytest.mark.parametrize("atomic", ["True", "False"])
async def test_a_batch_in_hybrid_row_is_refused_with_what_is_not_supported(
    container: ContainerProxy, raw: Raw, cosmos_server: Service, atomic: str
) -> None:
    # TransactionalBatch is atomic and bulk is not; both begin with the version of HybridRow and a schema id.
    headers = {**BATCH, "x-ms-cosmos-batch-ordered": "True", "x-ms-cosmos-batch-atomic": atomic}

    reply = await raw.send(
        "POST", items_path(container), headers=headers, data=b"\x81\xfe\xff\xff\x7f\x01\x02"
    )

    assert reply.status == 400
    assert reply.headers["Content-Type"].startswith(
        "application/json"
    )  # else the .NET SDK does not look for a message
    assert "does not support batches in HybridRow" in reply.body["message"]
    # Of a refused bulk the .NET SDK shows no message.
    refusals = cosmos_server.log.read_text().count(
        "a request was refused: 400/0 devstack does not support batches in"
    )
    assert refusals == 1
