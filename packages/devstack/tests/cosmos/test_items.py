"""Items one at a time, as the SDK sees them and as the wire shows them."""

from collections.abc import Callable
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos import exceptions
from azure.cosmos.aio import ContainerProxy

from cosmos.raw import Raw, items_path

PK = {"x-ms-documentdb-partitionkey": '["a"]'}


async def test_an_item_comes_back_as_written_with_the_systems_properties(container: ContainerProxy) -> None:
    body = {
        "id": "1",
        "pk": "a",
        "text": "Zoë 🎉",
        "number": 1.5,
        "big": 2**53,
        "nothing": None,
        "list": [1, {"x": True}],
    }

    created = await container.create_item(body)
    read = await container.read_item("1", "a")

    assert dict(read) == dict(created)
    assert {name: read[name] for name in body} == body
    assert set(read) - set(body) == {"_rid", "_self", "_etag", "_attachments", "_ts"}


async def test_numbers_are_doubles_and_do_not_keep_their_form(container: ContainerProxy, raw: Raw) -> None:
    body = b'{"id":"1","pk":"a","whole":[1.0,1e2,-2.0],"broken":0.1,"large":[9007199254740993,1e300]}'

    created = await raw.send("POST", items_path(container), headers=PK, data=body)
    read = await container.read_item("1", "a")

    assert created.status == 201
    assert repr(read["whole"]) == "[1, 100, -2]"
    assert repr(read["broken"]) == "0.1"
    assert read["large"] == [9007199254740992, 1e300]
    beyond = await raw.send("POST", items_path(container), headers=PK, data=b'{"id":"2","pk":"a","n":1e400}')
    assert beyond.status == 400


async def test_system_properties_of_a_client_are_replaced(container: ContainerProxy) -> None:
    created = await container.create_item(
        {"id": "1", "pk": "a", "_etag": "mine", "_ts": 1, "_rid": "x", "_self": "y"}
    )

    assert created["_etag"] != "mine"
    assert created["_ts"] > 1
    assert created["_self"].startswith("dbs/")


async def test_creating_twice_is_a_conflict_only_in_one_partition_key(container: ContainerProxy) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    await container.create_item({"id": "1", "pk": "b"})

    with pytest.raises(exceptions.CosmosResourceExistsError) as refused:
        await container.create_item({"id": "1", "pk": "a"})

    assert refused.value.status_code == 409


async def test_every_write_gives_a_new_etag_and_keeps_the_rid(container: ContainerProxy) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})
    replaced = await container.replace_item("1", {"id": "1", "pk": "a", "n": 1})
    upserted = await container.upsert_item({"id": "1", "pk": "a", "n": 2})
    patched = await container.patch_item("1", "a", [{"op": "incr", "path": "/n", "value": 5}])

    assert len({item["_etag"] for item in (created, replaced, upserted, patched)}) == 4
    assert {item["_rid"] for item in (created, replaced, upserted, patched)} == {created["_rid"]}
    assert patched["n"] == 7


@pytest.mark.parametrize("operation", ["replace", "upsert", "delete", "patch"])
async def test_a_stale_if_match_is_refused_and_changes_nothing(
    container: ContainerProxy, operation: str
) -> None:
    stale = await container.create_item({"id": "1", "pk": "a", "n": 1})
    current = await container.replace_item("1", {"id": "1", "pk": "a", "n": 2})
    condition: Any = {"etag": stale["_etag"], "match_condition": MatchConditions.IfNotModified}
    body = {"id": "1", "pk": "a", "n": 3}
    calls: dict[str, Callable[[], Any]] = {
        "replace": lambda: container.replace_item("1", body, **condition),
        "upsert": lambda: container.upsert_item(body, **condition),
        "delete": lambda: container.delete_item("1", "a", **condition),
        "patch": lambda: container.patch_item(
            "1", "a", [{"op": "set", "path": "/n", "value": 3}], **condition
        ),
    }

    with pytest.raises(exceptions.CosmosAccessConditionFailedError) as refused:
        await calls[operation]()

    assert refused.value.status_code == 412
    assert dict(await container.read_item("1", "a")) == dict(current)


async def test_a_current_if_match_is_taken_once(container: ContainerProxy) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})
    condition: Any = {"etag": created["_etag"], "match_condition": MatchConditions.IfNotModified}

    await container.replace_item("1", {"id": "1", "pk": "a", "n": 1}, **condition)
    with pytest.raises(exceptions.CosmosAccessConditionFailedError):
        await container.replace_item("1", {"id": "1", "pk": "a", "n": 2}, **condition)


async def test_a_read_with_the_known_etag_is_304_without_a_body(container: ContainerProxy, raw: Raw) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})

    known = await raw.send(
        "GET", f"{items_path(container)}/1", headers={**PK, "If-None-Match": created["_etag"]}
    )
    other = await raw.send("GET", f"{items_path(container)}/1", headers={**PK, "If-None-Match": '"other"'})

    assert (known.status, known.body) == (304, None)
    assert (other.status, other.body["id"]) == (200, "1")


async def test_a_replace_may_give_a_new_id_that_is_free(container: ContainerProxy) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    await container.create_item({"id": "2", "pk": "a"})

    with pytest.raises(exceptions.CosmosResourceExistsError):
        await container.replace_item("1", {"id": "2", "pk": "a"})
    await container.replace_item("1", {"id": "3", "pk": "a"})

    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await container.read_item("1", "a")
    assert (await container.read_item("3", "a"))["id"] == "3"


async def test_what_is_not_there_is_404(container: ContainerProxy, raw: Raw) -> None:
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await container.read_item("none", "a")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await container.delete_item("none", "a")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await container.replace_item("none", {"id": "none", "pk": "a"})

    item = await raw.send("GET", f"{items_path(container)}/none", headers=PK)
    owner = await raw.send("GET", "/dbs/missing/colls/none/docs/1", headers=PK)

    assert (item.status, item.sub_status) == (404, None)
    assert (owner.status, owner.sub_status) == (404, "1003")
    assert item.body["code"] == "NotFound"


async def test_minimal_answers_have_no_body_but_the_etag(container: ContainerProxy, raw: Raw) -> None:
    reply = await raw.send(
        "POST", items_path(container), headers={**PK, "Prefer": "return=minimal"}, body={"id": "1", "pk": "a"}
    )

    assert (reply.status, reply.body) == (201, None)
    assert reply.headers["etag"] == (await container.read_item("1", "a"))["_etag"]


BAD: list[tuple[bytes, str]] = [
    (b"{", "not valid JSON"),
    (b"[]", "must be a JSON object"),
    (b'{"pk": "a"}', "required properties - 'id; '"),
    (b'{"id": "", "pk": "a"}', "required properties - 'id; '"),
    (b'{"id": 5, "pk": "a"}', "must be a string"),
    (b'{"id": "a/b", "pk": "a"}', "must not hold any of"),
    (b'{"id": "a?b", "pk": "a"}', "must not hold any of"),
    (b'{"id": "' + b"x" * 1024 + b'", "pk": "a"}', "less than '1024' characters"),
    (b'{"id": "1", "pk": "a", "n": NaN}', "not valid JSON"),
    (b'{"id": "1", "pk": "a", "n": "\\ud800"}', "lone surrogate"),
    (b'{"id": "1", "pk": "a", "n": "\xff"}', "not UTF-8"),
    (b'{"id": "1", "pk": "a", "n": ' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
    (b'{"id": "1", "pk": "a", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not valid JSON"),
    (b'{"id": "1", "pk": "b"}', "doesn't match the one specified in the header"),
    (b'{"id": "1"}', "doesn't match the one specified in the header"),
]


async def test_a_bad_item_is_400_and_says_why(container: ContainerProxy, raw: Raw) -> None:
    for data, says in BAD:
        reply = await raw.send("POST", items_path(container), headers=PK, data=data)

        assert reply.status == 400
        assert reply.body["code"] == "BadRequest"
        assert says in reply.body["message"]
        assert [item async for item in container.read_all_items()] == []


async def test_an_item_over_two_megabytes_is_413(container: ContainerProxy, raw: Raw) -> None:
    for megabytes in (2, 10):
        body = {"id": "1", "pk": "a", "text": "x" * (megabytes * 1024 * 1024)}

        reply = await raw.send("POST", items_path(container), headers=PK, body=body)

        assert (reply.status, reply.body["code"]) == (413, "RequestEntityTooLarge")


async def test_a_foreign_partition_key_has_its_sub_status(container: ContainerProxy, raw: Raw) -> None:
    reply = await raw.send("POST", items_path(container), headers=PK, body={"id": "1", "pk": "b"})
    missing = await raw.send("POST", items_path(container), body={"id": "1", "pk": "b"})

    assert (reply.status, reply.sub_status) == (400, "1001")
    assert (missing.status, missing.sub_status) == (400, None)


async def test_partition_keys_of_every_type_are_keys_of_their_own(container: ContainerProxy) -> None:
    keys: list[Any] = ["1", 1, True, None, 1.5, ""]
    for key in keys:
        await container.create_item({"id": "same", "pk": key})
    await container.create_item({"id": "same"})

    for key in keys:
        assert (await container.read_item("same", key))["pk"] == key
    everything = [item async for item in container.read_all_items()]
    assert len(everything) == len(keys) + 1


async def test_a_write_moves_the_session_token_on_and_a_read_does_not(container: ContainerProxy) -> None:
    first = (await container.create_item({"id": "1", "pk": "a"})).get_response_headers()
    read = (await container.read_item("1", "a")).get_response_headers()
    second = (await container.upsert_item({"id": "1", "pk": "a"})).get_response_headers()

    assert read["x-ms-session-token"] == first["x-ms-session-token"]
    assert int(second["lsn"]) == int(first["lsn"]) + 1
    assert second["x-ms-session-token"] == f"0:-1#{second['lsn']}"


async def test_a_session_token_from_the_future_is_404_1002(container: ContainerProxy, raw: Raw) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    path = f"{items_path(container)}/1"

    future = await raw.send("GET", path, headers={**PK, "x-ms-session-token": "0:-1#999"})
    nonsense = await raw.send("GET", path, headers={**PK, "x-ms-session-token": "nonsense"})

    assert (future.status, future.sub_status) == (404, "1002")
    assert nonsense.status == 400


async def test_a_container_made_anew_is_not_taken_for_the_old_one(
    container: ContainerProxy, raw: Raw
) -> None:
    headers = {**PK, "x-ms-cosmos-intended-collection-rid": "AAAAAAAAAAA="}

    reply = await raw.send("POST", items_path(container), headers=headers, body={"id": "1", "pk": "a"})

    assert (reply.status, reply.sub_status) == (400, "1024")


async def test_charges_grow_with_size(container: ContainerProxy) -> None:
    small = await container.create_item({"id": "1", "pk": "a"})
    large = await container.create_item({"id": "2", "pk": "a", "text": "x" * 10_000})
    read = await container.read_item("1", "a")

    def charge(item: Any) -> float:
        return float(item.get_response_headers()["x-ms-request-charge"])

    assert charge(read) == 1.0
    assert 4 < charge(small) < 10 < charge(large)


async def test_links_made_of_resource_ids_work(container: ContainerProxy) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})

    assert (await container.read_item(dict(created), "a"))["id"] == "1"


async def test_all_items_of_a_partition_key_can_be_deleted(container: ContainerProxy) -> None:
    for number in range(3):
        await container.create_item({"id": str(number), "pk": "a"})
    await container.create_item({"id": "1", "pk": "b"})

    await container.delete_all_items_by_partition_key("a")

    assert [item["pk"] async for item in container.read_all_items()] == ["b"]
