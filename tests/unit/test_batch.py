"""A transaction numbers its events by their aggregate's document, and is as large as the store counts it."""

import json
from typing import Any, cast

import pytest

from cosmos_outbox.cosmos.existing.documents import Numbering, Raised
from cosmos_outbox.cosmos.relay.parked_documents import chunks, place_of
from cosmos_outbox.cosmos.store.container import Container, Write, size_in_bytes
from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths
from cosmos_outbox.cosmos.transaction import MAX_BYTES, MAX_OPERATIONS, Batch
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import ChangeTooLarge
from tests.support.contacts import NOON

LARGEST = 9_007_199_254_740_991
"""Of larger integers a reader of JSON may make another one."""


def number(last: Any) -> list[int | None]:
    """The sequence of the next event of a seat, by what its document says of the one before."""
    raised = Raised("e", AggregateKey("seat", "a"), "Held", NOON, {}, "a", 1)
    return Numbering({"seat": "/last"}).number([raised], {"a": Write.replace({"id": "a", "last": last}, "v")})


@pytest.mark.parametrize("last", [0, 41, LARGEST - 1])
def test_the_next_event_has_the_next_number(last: int) -> None:
    assert number(last) == [last + 1]


@pytest.mark.parametrize("last", [-1, LARGEST, LARGEST + 1, True, 1.0, "1", None])
def test_what_is_no_number_of_an_event_or_the_last_that_can_be_is_refused(last: Any) -> None:
    with pytest.raises(ValueError, match="/last of the document of seat"):
        number(last)


PATHS = PartitionKeyPaths(("/partitionKey",))


def item(size: int) -> dict[str, Any]:
    """One of so many bytes of JSON."""
    made = {"id": ""}
    return {"id": "x" * (size - len(json.dumps(made)))}


def test_parked_documents_are_chunked_by_number_and_by_total_size() -> None:
    assert [len(each) for each in chunks([item(100)] * 95)] == [40, 40, 15]
    assert [len(each) for each in chunks([item(300_000)] * 7)] == [3, 3, 1]
    assert [len(each) for each in chunks([item(300_000), item(300_001), *[item(300_000)] * 3])] == [2, 3]
    assert [len(each) for each in chunks([item(100), item(2_000_000), item(100)])] == [1, 1, 1]
    assert list(chunks([])) == []


@pytest.mark.parametrize(("length", "is_kept"), [(2048, True), (2049, False)])
def test_the_place_of_a_document_has_its_id_as_long_as_a_store_takes_it(length: int, is_kept: bool) -> None:
    name = "x" * length
    assert place_of({"id": name, "partitionKey": "p"}, PATHS) == {
        "id": name if is_kept else None,
        "partitionKey": "p",
    }


def check_size(writes: list[Write]) -> None:
    Batch(cast(Container, None), "key", writes)


def test_a_change_is_refused_from_the_first_byte_or_document_too_many_on() -> None:
    rest = MAX_BYTES - size_in_bytes([Write.create(item(1000))])
    check_size([Write.create(item(1000 + rest))])
    with pytest.raises(ChangeTooLarge):
        check_size([Write.create(item(1001 + rest))])
    check_size([Write.create(item(20))] * MAX_OPERATIONS)
    with pytest.raises(ChangeTooLarge):
        check_size([Write.create(item(20))] * (MAX_OPERATIONS + 1))
