"""An event under a key that is none costs its aggregate and nobody else, whatever the paths of its container are.

``tests/contract/test_any_document.py`` draws documents with anything in them.
"""

import json
from typing import Any, cast

import pytest

from cosmos_outbox.cosmos.aggregates.documents import EventReader, is_as_committed
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.feed import OutboxEvent, Poison, SkipMarker
from tests.support.contacts import NOON
from tests.support.feed import EVENTS, contact_id, contact_key, event_document


class Nothing:
    """A container in which nothing is."""

    async def read(self, item_id: str, partition_key: str, *, consistent: bool = False) -> None:
        f"{item_id}{partition_key}".encode()


@pytest.mark.parametrize("paths", [("/partitionKey",), ("/tenant", "/owner/id"), ("/owner/tenant/id",)])
@pytest.mark.parametrize(
    "value", [None, "", "\ud800", "x" * 2049, 10**400, float("nan"), {"a": 1}, [1], ["a", "b"]]
)
async def test_an_event_under_an_invalid_key_is_poison_to_park_and_discard(
    paths: tuple[str, ...], value: Any
) -> None:
    """Whatever the paths of the container are."""
    of = PartitionKeyPaths(paths)
    broken = [value] * len(paths) if len(paths) > 1 else value
    stored = {
        name: each for name, each in event_document("a", 1).items() if name not in ("partitionKey", "digest")
    }
    item = stored | {"aggregateId": contact_id("a"), **of.fields(broken), "_lsn": 3}
    reader = EventReader(EVENTS.untyped, of)
    event = reader.event(item)
    assert event is not None
    [found] = await CosmosOriginals(cast(Any, Nothing()), reader).verify([event])
    assert isinstance(found, Poison)
    assert found.aggregate == contact_key("a")

    documents = ParkedDocuments(reader)
    [place] = AggregateBlock(contact_key("a")).with_parked([found])[1]
    parked = documents.event_item(found, AggregateBlock(contact_key("a")), place, at=NOON)
    for left in (parked, documents.without_document(parked)):
        json.dumps(documents.without_document(left), ensure_ascii=False, allow_nan=False).encode()
        skip_marker = documents.skip_marker_item(
            SkipMarker(contact_key("a"), found.id, found.sequence, NOON), left
        )
        json.dumps(skip_marker, ensure_ascii=False, allow_nan=False).encode()
        assert is_as_committed(skip_marker["document"], of)
        assert isinstance(reader.event(skip_marker["document"]), OutboxEvent)
