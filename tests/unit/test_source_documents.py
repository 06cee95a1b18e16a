"""How far an aggregate has come is told by its document; that there is none, by an answer that no replica gives."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions
from cosmos_outbox.cosmos.inbox.source import CosmosSource
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.reaction_decision import InOrder, TargetPlace
from cosmos_outbox.outbox.on_commit import OnCommit
from cosmos_outbox.testing.documents import MemoryContainer
from tests.contract.test_entries import FORM
from tests.support.inbox import KEY
from tests.support.reactions import Heap


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


class Behind(MemoryContainer):
    """A document is there by the answer to a write, and no read shows it."""

    async def exists(self, item_id: str, partition_key: Key) -> bool:
        return True


def _find(container: Container) -> Awaitable[object]:
    reactions = CosmosReactions(container, Heap, "marks", InOrder.ANY, Lifetimes(600, 600), OnCommit())
    return reactions.find(TargetPlace("h-1", "h-1", "record", ""))


@pytest.mark.parametrize(
    "newest",
    [
        lambda container: CosmosEntries(container, FORM, 600).newest(KEY),
        lambda container: CosmosSource(container, dict).newest(KEY),
        _find,
    ],
)
async def test_what_is_there_and_is_not_read_is_asked_for_again_and_not_taken_for_gone(
    newest: Callable[[Container], Awaitable[object]],
) -> None:
    assert await newest(MemoryContainer()) is None
    with pytest.raises(StoreAway):
        await newest(Behind())
