"""Stores a subscriber's entry as one item, written over the version that was read: all of it, or nothing.

State, sequence and event id are in the same item (``one-write`` in ``cosmos_outbox/inbox/``). A deleted entry keeps id
and sequence, loses everything else, and expires. An item names the schema of its state: a state of another schema, or
one that cannot be read, is never taken for a state (``other-form`` in ``cosmos_outbox/inbox/``).
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, reported
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER, Item
from cosmos_outbox.inbox.entry import (
    Entry,
    EntrySchema,
    Stamp,
    VersionedEntry,
    WalkPage,
    entry_document,
    entry_of,
    text_or_none,
)
from cosmos_outbox.inbox.errors import EntryChanged, StoreUnavailable, Unstorable
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.telemetry.tracing import writing

S = TypeVar("S", bound=BaseModel)

TYPE, PROGRESS = "entry", "progress"

_WALK = "walk"
_ENTRIES = "SELECT * FROM c WHERE c.type = 'entry' AND NOT c.deleted"
_PARTITION = f"{PROGRESS}/{_WALK}"
"""The partition of the progress: an entry's partition is an id, and an id has no slash."""
_PAGE = 100


@dataclass(frozen=True)
class CosmosEntries(Generic[S]):
    """The entries of one subscriber, for aggregates of one type. See :class:`cosmos_outbox.inbox.ports.Entries`."""

    container: Container
    form: EntrySchema[S]
    deleted_ttl_seconds: int | None
    """Longer than any message of a deleted aggregate can still come; None: deleted entries are kept for good."""

    async def read(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """Returns the entry as this replica has it. Raises StoreUnavailable."""
        with reported(partial(failed, key)):
            item = await self.container.read(key.id, key.id)
        return None if item is None else entry_of(self.form, item, item["_etag"])

    async def newest(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """Returns the entry with a consistent read. Raises StoreUnavailable."""
        item = await newest_item(self.container, key)
        return None if item is None else entry_of(self.form, item, item["_etag"])

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> str:
        """Writes an entry, and returns its version. Raises EntryChanged, Unstorable, StoreUnavailable."""
        lives = KEEP_FOR_EVER if entry.state is not None else self.deleted_ttl_seconds or KEEP_FOR_EVER
        document = entry_document(self.form, key, entry, stamp)
        item = {**document, "partitionKey": key.id, "type": TYPE, "ttl": lives}
        with writing("entry"):
            return await self._write(key.id, Write.put(item, over))

    async def remove(self, key: AggregateKey, *, over: str) -> None:
        """Removes an entry. Raises EntryChanged, StoreUnavailable."""
        await self._write(key.id, Write.delete(key.id, over))

    async def page(self, position: str | None) -> WalkPage[VersionedEntry[S]]:
        """Returns a page of the entries that are not deleted. Raises StoreUnavailable."""
        items, token = await walk_page(self.container, _ENTRIES, {}, position)
        return WalkPage([(_key(item), entry_of(self.form, item, item["_etag"])) for item in items], token)

    async def mark(self, key: AggregateKey, version: str, blocked_since: datetime | None) -> None:
        """Records in an entry since when it is blocked. Raises EntryChanged, StoreUnavailable."""
        with reported(store_away):
            item = await self.container.read(key.id, key.id)
        if item is None or item["_etag"] != version:
            raise EntryChanged(f"the entry of {key} has changed")
        marked = {name: value for name, value in item.items() if not name.startswith("_")}
        await self._write(
            key.id, Write.replace(marked | {"blockedSince": text_or_none(blocked_since)}, version)
        )

    async def progress(self) -> tuple[Mapping[str, Any], str] | None:
        """Returns the walk's progress, as far as this replica shows it. Raises StoreUnavailable."""
        with reported(store_away):
            item = await self.container.read(_WALK, _PARTITION)
        return None if item is None else (item, str(item["_etag"]))

    async def save_progress(self, document: Mapping[str, Any], *, over: str | None) -> str:
        """Writes the walk's progress and returns its new version. Raises EntryChanged, StoreUnavailable."""
        item = {"id": _WALK, "partitionKey": _PARTITION, "type": PROGRESS, **document}
        return await self._write(_PARTITION, Write.put(item, over))

    async def _write(self, partition: str, write: Write) -> str:
        try:
            [version] = await self.container.execute(partition, [write])
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE, Kind.MISSING):
                raise EntryChanged(f"another writer changed {partition}: read it again") from error
            raise failed(partition, error.failure) from error
        return version


def _key(item: Item) -> AggregateKey:
    return AggregateKey(item["aggregateType"], item["id"])


async def walk_page(
    container: Container, query: str, parameters: Mapping[str, Any], position: str | None
) -> tuple[list[Item], str | None]:
    """Returns a page of an unordered list, which continues over all partitions by the store's token.

    A token that the store no longer accepts, as after a split of a partition, begins the list again. Raises
    StoreUnavailable.
    """
    try:
        return await container.page(query, parameters, _PAGE, position)
    except StoreFailed as error:
        if error.failure.kind is not Kind.INVALID or position is None:
            raise store_away(error.failure) from error
    return await walk_page(container, query, parameters, None)


async def newest_item(container: Container, key: AggregateKey) -> Item | None:
    """Returns an aggregate's item with a consistent read; None: there is proven to be none. Raises StoreUnavailable."""
    with reported(partial(failed, key)):
        return await container.read(key.id, key.id, consistent=True)


def failed(key: AggregateKey | str, failure: Failure) -> StoreUnavailable | Unstorable:
    """Returns the error for a failed call about one aggregate: a refused request means nothing for the others."""
    if failure.kind in (Kind.TOO_LARGE, Kind.INVALID):
        return Unstorable(f"the store refuses what is asked of {key}: {failure.detail}")
    return store_away(failure)


def store_away(failure: Failure) -> StoreUnavailable:
    """Returns the error for a failure of the store that is not about one item and hits all aggregates."""
    return StoreUnavailable(str(failure.error()), retry_after_seconds=failure.retry_after_seconds)
