"""Patches: each operation, and a patch that fails halfway leaves the item as it was."""

from typing import Any

import pytest
from azure.cosmos import exceptions
from azure.cosmos.aio import ContainerProxy

from cosmos.raw import Raw, items_path

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly

START: dict[str, Any] = {
    "id": "1",
    "pk": "a",
    "n": 1,
    "most": 1.7e308,
    "list": ["x", "z"],
    "in": {"deep": True},
}


@pytest.mark.parametrize(
    ("operation", "changed"),
    [
        ({"op": "add", "path": "/new", "value": {"a": 1}}, {"new": {"a": 1}}),
        ({"op": "add", "path": "/list/1", "value": "y"}, {"list": ["x", "y", "z"]}),
        ({"op": "add", "path": "/list/-", "value": "y"}, {"list": ["x", "z", "y"]}),
        ({"op": "set", "path": "/list/1", "value": "y"}, {"list": ["x", "y"]}),
        ({"op": "set", "path": "/in/deep", "value": False}, {"in": {"deep": False}}),
        ({"op": "replace", "path": "/n", "value": "one"}, {"n": "one"}),
        ({"op": "incr", "path": "/n", "value": 2.5}, {"n": 3.5}),
        ({"op": "incr", "path": "/fresh", "value": 3}, {"fresh": 3}),
        ({"op": "incr", "path": "/n", "value": 2**53}, {"n": 2**53}),
        ({"op": "remove", "path": "/list/0"}, {"list": ["z"]}),
        ({"op": "move", "from": "/n", "path": "/in/n"}, {"n": None, "in": {"deep": True, "n": 1}}),
    ],
)
async def test_operations(
    container: ContainerProxy, operation: dict[str, Any], changed: dict[str, Any]
) -> None:
    await container.create_item(START)

    patched = await container.patch_item("1", "a", [operation])

    expected = {name: value for name, value in {**START, **changed}.items() if value is not None}
    assert {name: value for name, value in patched.items() if not name.startswith("_")} == expected


MISFITS: list[dict[str, Any]] = [
    {"op": "replace", "path": "/none", "value": 1},
    {"op": "remove", "path": "/none"},
    {"op": "incr", "path": "/in", "value": 1},
    {"op": "incr", "path": "/n", "value": "1"},
    {"op": "incr", "path": "/most", "value": 1e308},
    {"op": "add", "path": "/none/deeper", "value": 1},
    {"op": "set", "path": "/list/9", "value": 1},
    {"op": "set", "path": "/_ts", "value": 1},
    {"op": "set", "path": "/id", "value": "other"},
    {"op": "set", "path": "/pk", "value": "other"},
    {"op": "move", "from": "/in", "path": "/in/deep"},
    {"op": "unknown", "path": "/n"},
    {"op": "set", "path": "n", "value": 1},
    {"op": "set", "path": "/ttl", "value": 0},
]


async def test_what_does_not_fit_is_400_and_changes_nothing(container: ContainerProxy) -> None:
    created = await container.create_item(START)

    for operation in MISFITS:
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            await container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 99}, operation])

        assert refused.value.status_code == 400
        assert dict(await container.read_item("1", "a")) == dict(created)


async def test_more_than_ten_operations_are_refused(container: ContainerProxy) -> None:
    await container.create_item(START)

    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await container.patch_item("1", "a", [{"op": "incr", "path": "/n", "value": 1}] * 11)

    assert refused.value.status_code == 400


async def test_the_condition_decides(container: ContainerProxy) -> None:
    await container.create_item(START)
    change = [{"op": "incr", "path": "/n", "value": 1}]

    patched = await container.patch_item(
        "1", "a", change, filter_predicate="FROM c WHERE c.n = 1 AND c.in.deep"
    )
    with pytest.raises(exceptions.CosmosAccessConditionFailedError):
        await container.patch_item("1", "a", change, filter_predicate="FROM c WHERE c.n = 1")
    with pytest.raises(exceptions.CosmosHttpResponseError) as nonsense:
        await container.patch_item("1", "a", change, filter_predicate="WHERE nonsense(")

    assert patched["n"] == 2
    assert nonsense.value.status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([{"op": "set", "path": "/n", "value": 5}], 200),
        ({"operations": [{"op": "set", "path": "/n", "value": 5}]}, 200),
        ([], 400),
        ("nonsense", 400),
    ],
)
async def test_the_operations_may_come_without_an_object_around_them(
    container: ContainerProxy, raw: Raw, body: Any, status: int
) -> None:
    """JavaScript's SDK sends its caller's array as it is: PatchRequestBody of @azure/cosmos."""
    await container.create_item(START)

    reply = await raw.send(
        "PATCH", f"{items_path(container)}/1", headers={"x-ms-documentdb-partitionkey": '["a"]'}, body=body
    )

    assert reply.status == status
    assert (await container.read_item("1", "a"))["n"] == (5 if status == 200 else START["n"])
