"""Reads a subscriber's source from its own documents, and distinguishes the reads that are proof.

The document has the aggregate's last sequence (``lastSequence``), since it is written in one transaction with the
events. A tombstone is a deleted aggregate; a missing document is a removed one, if a consistent read proves that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.entries import failed, newest_item, walk_page
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.inbox.entry import Found, WalkPage
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")


@dataclass(frozen=True)
class CosmosSource(Generic[S]):
    """Aggregates whose id is their partition key, in the container of an outbox.

    See :class:`cosmos_outbox.inbox.ports.Source` and :class:`cosmos_outbox.inbox.ports.SourceList`.
    """

    container: Container
    type: str
    """The type of the aggregates."""
    state_of: Callable[[Mapping[str, Any]], S]
    """Returns the subscriber's state of an aggregate's ``data``."""

    async def read(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate as this replica has it. Raises StoreUnavailable."""
        try:
            return self._found(key, await self.container.read(key.id, key.id))
        except StoreFailed as error:
            raise failed(key, error.failure) from error

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate with a consistent read. Raises StoreUnavailable."""
        return self._found(key, await newest_item(self.container, key))

    async def page(self, since: datetime | None, position: str | None) -> WalkPage[Found[S]]:
        """Returns a page of the aggregates, deleted ones too. Raises StoreUnavailable."""
        items, token = await walk_page(
            self.container, *SourceDocuments.of_library(self.type).query(since), position
        )
        return WalkPage([(AggregateKey(self.type, item["id"]), self._read(item)) for item in items], token)

    def _found(self, key: AggregateKey, item: Item | None) -> Found[S] | None:
        return None if item is None or item.get("type") != key.type else self._read(item)

    def _read(self, item: Item) -> Found[S]:
        data = item["data"]
        state = None if data.get("deleted") else self.state_of(data)
        return Found(data.get("lastSequence", 0), state, datetime.fromtimestamp(item["_ts"], UTC))
