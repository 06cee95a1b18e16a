"""Physical partitions: where a key lives is what the SDK computes, and a split loses and repeats nothing."""

import asyncio
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, DatabaseProxy
from azure.cosmos.partition_key import NonePartitionKeyValue
from hypothesis import example, given
from hypothesis import strategies as st

from cosmos.raw import Raw, all_of, items_path
from devstack.cosmos.storage.epk import UNDEFINED, boundaries, effective_partition_key

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly

KEYS = (
    st.text(max_size=120)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**53), 2**53)
    | st.booleans()
    | st.none()
)


def sdk_hash(definition: PartitionKey, values: list[Any]) -> str:
    return str(definition._get_effective_partition_key_string(values)).upper()


@given(KEYS, st.sampled_from([1, 2]))
def test_hashes_are_the_sdks(key: Any, version: int) -> None:
    wanted = sdk_hash(PartitionKey("/pk", version=version), [key])

    assert effective_partition_key((key,), version=version) == wanted


@pytest.mark.parametrize("version", [1, 2])
def test_the_hash_of_no_value_is_the_sdks(version: int) -> None:
    wanted = sdk_hash(PartitionKey("/pk", version=version), [NonePartitionKeyValue])

    assert effective_partition_key((UNDEFINED,), version=version) == wanted


@example([0.0]).via("equal, but not the same hash")
@example([-0.0])
@given(st.lists(KEYS, min_size=1, max_size=3))
def test_hierarchical_hashes_are_the_sdks(keys: list[Any]) -> None:
    definition = PartitionKey(["/a", "/b", "/c"])

    assert effective_partition_key(tuple(keys), kind="MultiHash") == sdk_hash(definition, keys)


@pytest.mark.parametrize(("kind", "version"), [("Hash", 1), ("Hash", 2), ("MultiHash", 2)])
def test_the_ranges_share_the_keys_evenly(kind: str, version: int) -> None:
    edges = boundaries(4, kind=kind, version=version)
    counts = [0, 0, 0, 0]
    for number in range(400):
        key = effective_partition_key((f"key-{number}",), kind=kind, version=version)
        counts[next(i for i in range(4) if edges[i] <= key < edges[i + 1])] += 1

    assert edges[0] == ""
    assert edges[-1] == "FF"
    assert all(60 < count < 140 for count in counts)


async def ranges(container: ContainerProxy, raw: Raw) -> list[Any]:
    reply = await raw.send(
        "GET", f"/{container.container_link}/pkranges", headers={"A-IM": "Incremental Feed"}
    )
    found: list[Any] = reply.body["PartitionKeyRanges"]
    return found


async def split(container: ContainerProxy, raw: Raw, range_id: str) -> list[str]:
    _, database, _, name = container.container_link.strip("/").split("/")
    reply = await raw.administer(
        "POST", "split", {"database": database, "container": name, "range": range_id}
    )
    assert reply.status == 200, reply.body
    children: list[str] = reply.body["children"]
    return children


async def test_the_list_of_ranges_covers_everything_and_is_304_when_unchanged(
    wide: ContainerProxy, faulty_raw: Raw
) -> None:
    path = f"/{wide.container_link}/pkranges"
    first = await faulty_raw.send("GET", path, headers={"A-IM": "Incremental Feed"})
    same = await faulty_raw.send(
        "GET", path, headers={"A-IM": "Incremental Feed", "If-None-Match": first.headers["etag"]}
    )
    await split(wide, faulty_raw, "1")
    changed = await faulty_raw.send(
        "GET", path, headers={"A-IM": "Incremental Feed", "If-None-Match": first.headers["etag"]}
    )
    after = await ranges(wide, faulty_raw)

    assert [part["id"] for part in first.body["PartitionKeyRanges"]] == ["0", "1", "2", "3"]
    assert (same.status, same.headers["etag"]) == (304, first.headers["etag"])
    assert [(part["id"], part["parents"]) for part in changed.body["PartitionKeyRanges"]] == [
        ("4", ["1"]),
        ("5", ["1"]),
    ]
    assert [part["id"] for part in after] == ["0", "4", "5", "2", "3"]
    assert [part["minInclusive"] for part in after[1:]] == [part["maxExclusive"] for part in after[:-1]]


async def test_who_holds_the_old_range_gets_410_1002(wide: ContainerProxy, faulty_raw: Raw) -> None:
    await split(wide, faulty_raw, "0")
    headers = {"x-ms-documentdb-partitionkeyrangeid": "0"}
    query = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}

    feed = await faulty_raw.send("GET", items_path(wide), headers={**headers, "A-IM": "Incremental Feed"})
    page = await faulty_raw.send(
        "POST", items_path(wide), headers={**headers, **query}, body={"query": "SELECT * FROM c"}
    )
    again = await faulty_raw.administer(
        "POST", "split", {"database": wide.container_link.split("/")[1], "container": "items", "range": "0"}
    )

    assert (feed.status, feed.sub_status) == (410, "1002")
    assert (page.status, page.sub_status) == (410, "1002")
    assert again.status == 410


@pytest.mark.long  # test_lag_model splits, and reads on
async def test_a_split_loses_and_repeats_nothing(wide: ContainerProxy, faulty_raw: Raw) -> None:
    for number in range(40):
        await wide.create_item({"id": str(number), "pk": f"key-{number}"})
    parts = [part async for part in wide.read_feed_ranges()]
    seen: list[str] = []
    tokens = []
    for part in parts:
        pages = wide.query_items_change_feed(
            feed_range=part, start_time="Beginning", max_item_count=3
        ).by_page()
        seen += [item["id"] async for item in await anext(pages)]
        tokens.append(wide.client_connection.last_response_headers["etag"])

    for name in ("0", "1", "2", "3"):
        await split(wide, faulty_raw, name)
    for number in range(40, 60):
        await wide.create_item({"id": str(number), "pk": f"key-{number}"})
    for token in tokens:
        seen += [item["id"] async for item in wide.query_items_change_feed(continuation=token)]

    assert sorted(seen, key=int) == [str(number) for number in range(60)]


# The quick twin is test_a_split_loses_and_repeats_nothing.
@pytest.mark.long
async def test_readers_and_writers_go_on_during_a_split(wide: ContainerProxy, faulty_raw: Raw) -> None:
    async def write(start: int) -> None:
        for number in range(start, start + 25):
            item = await wide.upsert_item({"id": str(number), "pk": f"key-{number}"})
            assert (await wide.read_item(item["id"], item["pk"]))["_etag"] == item["_etag"]

    async def split_all() -> None:
        for name in ("0", "1", "2", "3"):
            await split(wide, faulty_raw, name)

    await asyncio.gather(write(0), write(100), write(200), split_all())

    written = sorted([*range(25), *range(100, 125), *range(200, 225)])
    query = wide.query_items("SELECT VALUE c.id FROM c ORDER BY c.id")
    assert sorted(map(int, await all_of(query))) == written
    feed = wide.query_items_change_feed(start_time="Beginning")
    assert sorted([int(item["id"]) async for item in feed]) == written


async def test_a_container_of_version_1_is_split_in_halves(
    faulty_database: DatabaseProxy, faulty_raw: Raw
) -> None:
    container = await faulty_database.create_container("first", PartitionKey("/pk", version=1))
    for number in range(40):
        await container.create_item({"id": str(number), "pk": f"key-{number}"})
    first, second = await split(container, faulty_raw, "0")

    counts = {}
    for name in (first, second):
        headers = {"x-ms-documentdb-partitionkeyrangeid": name}
        reply = await faulty_raw.send("GET", items_path(container), headers=headers)
        counts[name] = reply.body["_count"]

    assert all(counts.values())
    assert len([item async for item in container.read_all_items()]) == 40


async def test_hierarchical_keys_are_routed_by_prefix(faulty_database: DatabaseProxy) -> None:
    container = await faulty_database.create_container("deep", PartitionKey(["/country", "/city"]))
    for country, city in (("DE", "Ulm"), ("DE", "Bonn"), ("FR", "Lyon")):
        await container.create_item({"id": city, "country": country, "city": city})

    assert (await container.read_item("Ulm", ["DE", "Ulm"]))["city"] == "Ulm"
    found = container.query_items("SELECT VALUE c.city FROM c", partition_key=["DE"])
    assert sorted(await all_of(found)) == ["Bonn", "Ulm"]
