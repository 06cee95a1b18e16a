"""How far an aggregate has come is told by its document, and by nothing that only looks like a number."""

from typing import Any

import pytest

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.source import CosmosSource
from cosmos_outbox.testing.documents import MemoryContainer
from tests.support.inbox import KEY


@pytest.mark.parametrize(
    ("told", "sequence"),
    [
        ({}, 0),
        ({"lastSequence": None}, 0),
        ({"lastSequence": "3"}, 0),
        ({"lastSequence": True}, 0),
        ({"lastSequence": 1}, 1),
        ({"lastSequence": 3}, 3),
    ],
)
def test_a_document_that_tells_no_sequence_shows_no_event(told: dict[str, Any], sequence: int) -> None:
    seen = SourceDocuments.of_library(KEY.type).seen({"aggregateId": KEY.id, "_ts": 0, **told})
    assert (seen.key, seen.sequence, seen.deleted) == (KEY, sequence, False)


@pytest.mark.parametrize("sequence", [None, 1, 3])
async def test_an_aggregate_is_read_with_its_last_sequence(sequence: int | None) -> None:
    """With none, its first event is not taken for one that it shows."""
    container, data = MemoryContainer(), {} if sequence is None else {"lastSequence": sequence}
    await container.create({"id": KEY.id, "partitionKey": KEY.id, "type": KEY.type, "data": data})
    source = CosmosSource(container, dict)
    for found in (await source.read(KEY), await source.newest(KEY)):
        assert found is not None
        assert (found.sequence, found.state) == (sequence or 0, data)
