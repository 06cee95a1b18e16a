"""Where an item's partition key stands is declared once, and read and written in one way."""

import math
from typing import Any

import pytest

from cosmos_outbox.cosmos.store.partition_key import (
    PARTITION_KEY,
    PartitionKeyPaths,
    at,
    document_id,
    put,
)
from cosmos_outbox.service import Service
from cosmos_outbox.settings.names import ExistingContainer, Names

ONE, NESTED = PartitionKeyPaths(("/tenantId",)), PartitionKeyPaths(("/owner/tenant/id",))
TWO = PartitionKeyPaths(("/tenantId", "/owner/id"))
KEYS: list[tuple[PartitionKeyPaths, Any, dict[str, Any]]] = [
    (PARTITION_KEY, "a", {"partitionKey": "a"}),
    (ONE, 17, {"tenantId": 17}),
    (ONE, False, {"tenantId": False}),
    (NESTED, "a", {"owner": {"tenant": {"id": "a"}}}),
    (TWO, ("a", 1.5), {"tenantId": "a", "owner": {"id": 1.5}}),
]


@pytest.mark.parametrize(("paths", "key", "fields"), KEYS)
def test_a_key_is_written_and_read_at_its_paths(paths: PartitionKeyPaths, key: Any, fields: Any) -> None:
    assert paths.fields(key) == fields
    assert paths.of(fields | {"id": "x"}) == key
    assert paths.of({"id": "x"}) is None
    assert paths.key([*key] if isinstance(key, tuple) else key) == key


@pytest.mark.parametrize(
    ("paths", "given", "message"),
    [
        (ONE, ["a"], "one value, of /tenantId"),
        (NESTED, ("a", "b"), "one value, of /owner/tenant/id"),
        (TWO, "a", "a list with a value for each of /tenantId, /owner/id"),
        (TWO, ["a"], "a list with a value for each of /tenantId, /owner/id"),
        (TWO, ["a", 1, True], "a list with a value for each of /tenantId, /owner/id"),
        (ONE, 2**53, r"below 2\^53"),
        (ONE, -(2**53), r"below 2\^53"),
        (ONE, math.inf, r"below 2\^53"),
        (ONE, "", "not empty"),
        (TWO, ["a", None], "not empty"),
    ],
)
def test_what_is_no_key_of_the_container_is_refused_with_the_form_of_one(
    paths: PartitionKeyPaths, given: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        paths.key(given)
    assert paths.valid(given) is None


@pytest.mark.parametrize("number", [2**53 - 1, 1 - 2**53, 0, -1.5])
def test_a_number_that_every_reader_of_json_reads_alike_is_a_key(number: float) -> None:
    assert ONE.key(number) == number


@pytest.mark.parametrize(("length", "is_one"), [(2048, True), (2049, False)])
def test_of_a_key_that_is_longer_than_any_can_be_no_store_takes_a_part(length: int, *, is_one: bool) -> None:
    text = "a" * length
    assert PARTITION_KEY.storable({"partitionKey": text}) == (text if is_one else None)


def test_no_two_keys_have_one_text() -> None:
    keys: list[Any] = ["1", 1, True, "true", "\0", 1.5, "1.5", ("a", "b"), ("ab", ""), ("a", 1), ("a", True)]
    assert len({ONE.text(key) for key in keys}) == len({ONE.name(key) for key in keys}) == len(keys)
    assert {len(ONE.name(key)) for key in keys} == {32}
    assert ONE.text(1) == ONE.text(1.0), "JSON has one number"
    assert PARTITION_KEY.text("a") == "a"


@pytest.mark.parametrize("paths", [(), ("tenantId",), ("/",), ("/a//b",), ('/"a"',), ("/a", "/a"), ("/a", "/a/b"),
                                   ("/a", "/b", "/c", "/d")])  # fmt: skip
def test_what_is_no_path_is_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="path"):
        PartitionKeyPaths(paths)


@pytest.mark.parametrize("path", ["/id", "/type", "/data/tenantId", "/ttl", "/aggregateId", "/_etag"])
def test_a_path_that_an_event_document_needs_for_itself_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no event can be stored"):
        Service("bookings", own=ExistingContainer(path, {"booking": None}))
    with pytest.raises(ValueError, match="no event can be stored"):
        Service("bookings", own=ExistingContainer(["/tenantId", path], {"booking": None}))


def test_a_value_is_put_where_it_is_read() -> None:
    item: dict[str, Any] = {"meta": {"by": "x"}}
    put(item, "/meta/last", 1)
    assert (item, at(item, "/meta/last")) == ({"meta": {"by": "x", "last": 1}}, 1)
    assert at({"meta": 3}, "/meta/last") is None
    with pytest.raises(ValueError, match="no object"):
        put({"meta": 3}, "/meta/last", 1)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (lambda: ExistingContainer("/tenantId", {}), "names no aggregate"),
        (lambda: ExistingContainer("/tenantId", {"booking": "lastSequence"}), "no path of a property"),
        (lambda: ExistingContainer("/tenantId", {"booking": "/id"}), "cannot hold a sequence"),
        (lambda: ExistingContainer("/tenantId", {"booking": None}, default_ttl=0), "default_ttl"),
    ],
)
def test_a_declaration_that_cannot_hold_is_refused_at_once(own: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Service("bookings", own=own())


def bookings(**more: Any) -> Service:
    own = ExistingContainer(
        ["/tenantId", "/bookingId"], {"booking": "/lastSequence", "late-note": None}, **more
    )
    return Service("bookings", names=Names(database="d", container="bookings", topic="t"), own=own)


@pytest.mark.parametrize("unknown", ["x" * 1024, "a\nb", 7, None, {1, 2}])
def test_an_id_that_no_line_can_show_has_a_stand_in_of_its_own(unknown: object) -> None:
    assert document_id({"id": unknown}).startswith("unreadable-")
    assert document_id({"id": unknown}) == document_id({"id": unknown})
