"""The change feed: what comes, in which order, in which pages, and from where it goes on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from cosmos.raw import Raw, Reply, items_path
from devstack.testing import eventually

FEED = {"A-IM": "Incremental Feed"}


async def read(raw: Raw, container: ContainerProxy, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await raw.send("GET", items_path(container), headers={**FEED, **names})


def ids(reply: Reply) -> list[str]:
    return [item["id"] for item in reply.body["Documents"]]


async def create(container: ContainerProxy, *numbers: int, pk: str = "a") -> None:
    for number in numbers:
        await container.create_item({"id": str(number), "pk": pk})


async def test_an_empty_feed_is_304_with_an_etag_to_go_on_from(container: ContainerProxy, raw: Raw) -> None:
    empty = await read(raw, container)
    assert (empty.status, empty.body) == (304, None)

    await create(container, 1)
    more = await read(raw, container, If_None_Match=empty.headers["etag"])
    end = await read(raw, container, If_None_Match=more.headers["etag"])

    assert ids(more) == ["1"]
    assert more.headers["etag"] == f'"{more.body["Documents"][0]["_lsn"]}"'
    assert (end.status, end.headers["etag"]) == (304, more.headers["etag"])


async def test_items_come_in_the_order_of_their_last_writes(container: ContainerProxy, raw: Raw) -> None:
    await create(container, 1, 2, 3)
    await container.upsert_item({"id": "1", "pk": "a", "again": True})
    await container.delete_item("2", "a")

    reply = await read(raw, container)

    assert ids(reply) == ["3", "1"]
    numbers = [item["_lsn"] for item in reply.body["Documents"]]
    assert numbers == sorted(numbers)
    assert reply.body["Documents"][1]["again"] is True


async def test_pages_follow_one_another_without_loss_or_repeat(container: ContainerProxy, raw: Raw) -> None:
    await create(container, *range(7))

    seen: list[str] = []
    etag = '"0"'
    for _ in range(3):
        reply = await read(raw, container, If_None_Match=etag, x_ms_max_item_count="3")
        seen.append(",".join(ids(reply)))
        etag = reply.headers["etag"]

    assert seen == ["0,1,2", "3,4,5", "6"]


async def test_a_transaction_is_shuffled_but_never_split(container: ContainerProxy, raw: Raw) -> None:
    orders = set()
    for batch in range(8):
        operations: list[Any] = [("create", ({"id": f"{batch}-{n}", "pk": "a"},)) for n in range(5)]
        await container.execute_item_batch(operations, "a")
    etag = '"0"'
    for batch in range(8):
        reply = await read(raw, container, If_None_Match=etag, x_ms_max_item_count="2")
        assert sorted(ids(reply)) == [f"{batch}-{n}" for n in range(5)]
        assert len({item["_lsn"] for item in reply.body["Documents"]}) == 1
        orders.add(tuple(name[2:] for name in ids(reply)))
        etag = reply.headers["etag"]

    assert len(orders) > 1, "items of a transaction always come in one order: code may rely on luck"


async def test_a_page_that_is_not_full_takes_the_next_transaction_whole(
    container: ContainerProxy, raw: Raw
) -> None:
    await create(container, 1)
    await container.execute_item_batch([("create", ({"id": f"b{n}", "pk": "a"},)) for n in range(3)], "a")
    await create(container, 2)

    first = await read(raw, container, x_ms_max_item_count="2")
    second = await read(raw, container, If_None_Match=first.headers["etag"])

    assert sorted(ids(first)) == ["1", "b0", "b1", "b2"]
    assert ids(second) == ["2"]


async def test_from_now_only_later_changes_come(container: ContainerProxy, raw: Raw) -> None:
    await create(container, 1)
    now = await read(raw, container, If_None_Match="*")
    assert now.status == 304

    await create(container, 2)
    later = await read(raw, container, If_None_Match=now.headers["etag"])

    assert ids(later) == ["2"]


async def test_from_a_time_earlier_changes_do_not_come(container: ContainerProxy) -> None:
    await create(container, 1)
    first = await container.read_item("1", "a")

    async def a_later_second() -> Any:
        item = await container.upsert_item({"id": "2", "pk": "a"})
        return item if item["_ts"] > first["_ts"] else None

    second = await eventually(a_later_second)
    since = datetime.fromtimestamp(second["_ts"], UTC)

    assert [item["id"] async for item in container.query_items_change_feed(start_time=since)] == ["2"]
    hour_ago = since - timedelta(hours=1)
    assert [item["id"] async for item in container.query_items_change_feed(start_time=hour_ago)] == ["1", "2"]


async def test_the_sdk_goes_on_from_its_continuation(container: ContainerProxy) -> None:
    await create(container, 1, 2)
    feed = container.query_items_change_feed(start_time="Beginning", max_item_count=1)
    pages = feed.by_page()
    first = [item["id"] async for item in await anext(pages)]
    token = container.client_connection.last_response_headers["etag"]

    rest = [item["id"] async for item in container.query_items_change_feed(continuation=token)]

    assert (first, rest) == (["1"], ["2"])


async def test_one_partition_key_has_a_feed_of_its_own(container: ContainerProxy) -> None:
    await create(container, 1, 2, pk="a")
    await create(container, 3, pk="b")

    feed = container.query_items_change_feed(partition_key="b", start_time="Beginning")

    assert [item["id"] async for item in feed] == ["3"]


async def test_every_feed_range_is_read_and_together_they_are_the_container(wide: ContainerProxy) -> None:
    for number in range(40):
        await wide.create_item({"id": str(number), "pk": f"key-{number}"})
    by_range = [
        [item["id"] async for item in wide.query_items_change_feed(feed_range=part, start_time="Beginning")]
        async for part in wide.read_feed_ranges()
    ]

    assert len(by_range) == 4
    assert all(by_range), "40 keys leave no quarter of the hashes empty"
    assert sorted(int(name) for part in by_range for name in part) == list(range(40))
    whole = [item["id"] async for item in wide.query_items_change_feed(start_time="Beginning")]
    assert sorted(whole) == sorted(name for part in by_range for name in part)


async def test_without_a_range_all_partitions_are_read_in_turn(wide: ContainerProxy, faulty_raw: Raw) -> None:
    for number in range(12):
        await wide.create_item({"id": str(number), "pk": f"key-{number}"})
    seen: list[str] = []
    reply = await read(faulty_raw, wide, x_ms_max_item_count="2")
    while reply.status == 200:
        seen += ids(reply)
        reply = await read(faulty_raw, wide, x_ms_max_item_count="2", If_None_Match=reply.headers["etag"])

    assert sorted(seen, key=int) == [str(number) for number in range(12)]
    await wide.create_item({"id": "new", "pk": "key-3"})
    assert ids(await read(faulty_raw, wide, If_None_Match=reply.headers["etag"])) == ["new"]


async def test_the_lag_is_computed_from_the_session_token(container: ContainerProxy, raw: Raw) -> None:
    await create(container, 1, 2, 3)

    reply = await read(raw, container, x_ms_max_item_count="1")

    last = int(reply.headers["x-ms-session-token"].split(":")[1].split("#")[1])
    assert last - (reply.body["Documents"][0]["_lsn"] - 1) == 3


@pytest.mark.parametrize(
    "headers",
    [
        {"If_None_Match": '"x"'},
        {"If_Modified_Since": "yesterday"},
        {"x_ms_max_item_count": "0"},
        {"A_IM": "Full-Fidelity Feed"},
    ],
)
async def test_a_feed_that_cannot_be_read_is_400(
    container: ContainerProxy, raw: Raw, headers: dict[str, str]
) -> None:
    reply = await read(raw, container, **headers)

    assert (reply.status, reply.body["code"]) == (400, "BadRequest")
