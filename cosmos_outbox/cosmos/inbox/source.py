"""Reads a subscriber's source from its own documents, and distinguishes the reads that are proof.

The document has the aggregate's last sequence (``lastSequence``), since it is written in one transaction with the
events. A tombstone is a deleted aggregate; a missing document is a removed one, if a consistent read proves that.

A message does not name the partition of a team's own document. So a query over all of them finds its location, and is
used for that alone: conclusions are drawn from a consistent read in that partition, or, if nothing was found, from the
query repeated with a consistent read in every physical one.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments, last
from cosmos_outbox.cosmos.inbox.entries import failed, newest_item, walk_page
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.cosmos.store.container import Container, reported
from cosmos_outbox.cosmos.store.partition_key import Item, at, without_system_fields
from cosmos_outbox.inbox.entry import Found, WalkPage
from cosmos_outbox.inbox.errors import SourceBehind, StoreUnavailable
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from cosmos_outbox.settings.errors import Misconfigured

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
        with reported(partial(failed, key)):
            return self._found(key, await self.container.read(key.id, key.id))

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate with a consistent read. Raises StoreUnavailable."""
        return self._found(key, await newest_item(self.container, key))

    async def page(self, since: datetime | None, position: str | None) -> WalkPage[Callable[[], Found[S]]]:
        """Returns a page of the aggregates, deleted ones too. Raises StoreUnavailable."""
        items, token = await walk_page(
            self.container, *SourceDocuments.of_library(self.type).query(since), position
        )
        found = [(AggregateKey(self.type, item["id"]), partial(self._read, item)) for item in items]
        return WalkPage(found, token)

    def _found(self, key: AggregateKey, item: Item | None) -> Found[S] | None:
        return None if item is None or item.get("type") != key.type else self._read(item)

    def _read(self, item: Item) -> Found[S]:
        data = item["data"]
        state = None if data.get("deleted") else self.state_of(data)
        return Found(data.get("lastSequence", 0), state, datetime.fromtimestamp(item["_ts"], UTC))


@dataclass(frozen=True)
class OwnSource(Generic[S]):
    """Aggregates in a team's own documents. See :class:`cosmos_outbox.inbox.ports.Source` and ``SourceList``."""

    container: Container
    feed: ContainerProxy
    """The same container, as the SDK's client."""
    documents: SourceDocuments
    state_of: Callable[[Mapping[str, Any]], S]
    """Returns the subscriber's state of a document."""

    async def read(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate as some replica has it. Raises StoreUnavailable, SourceBehind."""
        with reported(partial(failed, key)):
            return self._found(await self._locate(key))

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate with a consistent read. Raises StoreUnavailable, SourceBehind."""
        with reported(partial(failed, key)):
            return self._found(await self._find_consistent(key) or await self._look_for(key))

    async def page(self, since: datetime | None, position: str | None) -> WalkPage[Callable[[], Found[S]]]:
        """Returns a page of the aggregates, deleted ones too. Raises StoreUnavailable."""
        items, token = await walk_page(self.container, *self.documents.query(since), position)
        found = [(str(at(item, self.documents.id)), partial(self._read, item)) for item in items]
        return WalkPage([(AggregateKey(self.documents.type, each), read) for each, read in found], token)

    async def _locate(self, key: AggregateKey) -> Item | None:
        condition, parameters = self.documents.of_one("c", key.id)
        query = f"SELECT * FROM c WHERE {condition}"  # noqa: S608 - paths of the declaration
        return one(key, await self.container.first(query, parameters, 2))

    async def _find_consistent(self, key: AggregateKey) -> Item | None:
        """Reads consistently where the document was found; None: it is not there, but may be in another partition."""
        found = await self._locate(key)
        partition = None if found is None else self.container.paths.of(found)
        if found is None or partition is None:
            return None
        item = await self.container.read(found["id"], partition, consistent=True)
        return item if item is not None and self.documents.is_of(item, key.id) else None

    async def _look_for(self, key: AggregateKey) -> Item | None:
        """Searches every physical partition with a consistent read; None: it is proven that there is none."""
        try:
            token = await renew_tokens(self.container, self.feed)
        except (Throttled, Unavailable, Misconfigured) as error:
            raise StoreUnavailable(str(error)) from error
        condition, parameters = self.documents.of_one("c", key.id)
        query = f"SELECT * FROM c WHERE {condition}"  # noqa: S608 - paths of the declaration
        found: list[Item] = []
        async for items in self.container.pages(query, parameters, 2, session_token=token):
            found += items
            if len(found) > 1:
                break
        return one(key, found)

    def _found(self, item: Item | None) -> Found[S] | None:
        return None if item is None else self._read(item)

    def _read(self, item: Item) -> Found[S]:
        deleted = at(item, self.documents.deleted) is True
        state = None if deleted else self.state_of(without_system_fields(item))
        changed_at = datetime.fromtimestamp(item["_ts"], UTC)
        return Found(last(at(item, self.documents.sequence)), state, changed_at)


def one(key: AggregateKey, found: list[Item]) -> Item | None:
    """Returns the one document. Raises SourceBehind: several are the same aggregate."""
    if len(found) > 1:
        raise SourceBehind(
            f"two documents have the id of {key}, which must be unique across partitions: neither is read until one of "
            "them has another id"
        )
    return found[0] if found else None
