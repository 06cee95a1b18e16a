"""What goes into one transaction is counted as the store counts it, to the last byte."""

import json
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.batch import MAX_BYTES, MAX_OPERATIONS, check_size
from cosmos_outbox.cosmos.relay.parked_documents import chunks, place_of
from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths
from cosmos_outbox.cosmos.store.writes import Write, size_in_bytes
from cosmos_outbox.outbox.errors import ChangeTooLarge

PATHS = PartitionKeyPaths(("/partitionKey",))


def item(size: int) -> dict[str, Any]:
    """One of so many bytes of JSON."""
    made = {"id": ""}
    return {"id": "x" * (size - len(json.dumps(made)))}


def test_parked_documents_are_parted_by_their_number_and_by_their_size_together() -> None:
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


def test_a_change_is_refused_from_the_first_byte_or_document_too_many_on() -> None:
    rest = MAX_BYTES - size_in_bytes([Write.create(item(1000))])
    check_size([Write.create(item(1000 + rest))])
    with pytest.raises(ChangeTooLarge):
        check_size([Write.create(item(1001 + rest))])
    check_size([Write.create(item(20))] * MAX_OPERATIONS)
    with pytest.raises(ChangeTooLarge):
        check_size([Write.create(item(20))] * (MAX_OPERATIONS + 1))
