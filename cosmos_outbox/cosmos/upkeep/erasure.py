"""What the store holds of one person is emptied in steps that can each be done twice: a crash leaves less, never more.

Each round looks behind a fence, so that no write that was committed before is missed, and changes what it found at the
version that it read. A document that changed meanwhile, or whose answer was lost, is met by the next round. What stays
has an id and a sequence, so that a late message finds that the aggregate is deleted.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.cosmos.aggregates.change_records import CHANGE_TYPE
from cosmos_outbox.cosmos.aggregates.documents import (
    EVENT_TYPE,
    REACTION_CURSOR_TYPE,
    REACTION_TYPE,
    REQUEST_TYPE,
)
from cosmos_outbox.cosmos.relay.marker_documents import named
from cosmos_outbox.cosmos.relay.parked_documents import DISCARDED, EVENT, PARTITION, place_of
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.erased import ERASED, emptied, note, record_names, replaced
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.item import FENCE, Item
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, Key, PartitionKeyPaths
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import ConcurrentChange

_AT_ONCE = 50
_ROUNDS = 10
"""Without progress, before ConcurrentChange is raised."""
_CHANGED = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
_OURS = {EVENT_TYPE, REQUEST_TYPE, CHANGE_TYPE, REACTION_TYPE, REACTION_CURSOR_TYPE, FENCE}
"""Those of reactions and of changes with a key stay: they hold nothing personal, and keep a message from making the
person anew (``erased_keeps_records``)."""
_HELD = "SELECT c.type, c.data.deleted FROM c"
_EVENTS = "SELECT * FROM c WHERE c.type = @type AND c.aggregateType = @aggregateType AND c.aggregateId = @id"

Empty = Callable[[Item], Write | None]
"""The write that takes the person's data out of an item; None: there is none in it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remains:
    """What a service keeps of a deleted aggregate of one type."""

    aggregate_type: str
    data: Callable[[Mapping[str, Any]], Item]
    """The ``data`` without the person's: an id, a sequence, and what else every version must find to read it."""
    kept_actions: Collection[str] = ()
    """Events that hold nothing personal, such as that of the deletion: a subscriber may still need them."""


@dataclass(frozen=True)
class Held:
    """What a partition holds of an aggregate."""

    living: bool
    """The aggregate is there and not deleted."""
    has_events: bool
    foreign: Sequence[str]
    """Types of documents that are not of this aggregate: they are left."""
    session_token: str
    """Of a fence behind the look: it knows of all that was seen."""


@dataclass(frozen=True)
class PartitionEraser:
    """The partition of an aggregate that has its id as partition key: the aggregate, its events, its requests."""

    container: Container
    remains: Remains

    async def look(self, aggregate_id: str) -> Held:
        """What is there, between two fences. Raises Throttled, Unavailable, Misconfigured."""
        living, types = False, set[str]()
        async for page in _pages(self.container, _HELD, {}, aggregate_id):
            living = living or any(self._is_ours(item) and not item.get("deleted") for item in page)
            types |= {str(item.get("type")) for item in page}
        session_token = await _fence(self.container, aggregate_id)
        return Held(
            living,
            EVENT_TYPE in types,
            sorted(types - {self.remains.aggregate_type, *_OURS}),
            session_token,
        )

    async def erase(self, aggregate_id: str) -> int:
        """Remove the events and empty the rest, of an aggregate that is deleted. Returns how many documents changed.

        Raises ConcurrentChange, Throttled, Unavailable, Misconfigured.
        """
        return await _empty(self.container, "SELECT * FROM c", {}, aggregate_id, self._empty)

    def _is_ours(self, item: Item) -> bool:
        return item.get("type") == self.remains.aggregate_type

    def _empty(self, item: Item) -> Write | None:
        data = item.get("data") or {}
        if item.get("type") == EVENT_TYPE:
            return None if data.get("action") in self.remains.kept_actions else _deleted(item)
        if item.get("type") == REQUEST_TYPE:
            return replaced(item, data={"erased": True})
        if self._is_ours(item):
            if not data.get("deleted"):
                raise ConcurrentChange(
                    f"{self.remains.aggregate_type} {item['id']} is not deleted: begin again"
                )
            return replaced(item, data=self.remains.data(data))
        return None


@dataclass(frozen=True)
class EventsEraser:
    """The events of one aggregate, in a partition that others may share; the documents of the team are left."""

    container: Container
    aggregate: AggregateKey
    partition_key: Key
    kept_actions: Collection[str] = ()

    async def look(self) -> tuple[Collection[str], str]:
        """The ids of those that are there, and the session token of a fence behind the look, which knows of all.

        Raises Throttled, Unavailable, Misconfigured.
        """
        pages = _pages(self.container, _EVENTS, self._named, self.partition_key)
        ids = {item["id"] async for page in pages for item in page}
        return ids, await _fence(self.container, self.partition_key)

    async def erase(self, ids: Collection[str]) -> int:
        """Remove those with these ids: what others stored meanwhile has perhaps not left. Returns how many.

        Raises as :meth:`PartitionEraser.erase` does.
        """

        def empty(item: Item) -> Write | None:
            kept = item["id"] not in ids or (item.get("data") or {}).get("action") in self.kept_actions
            return None if kept else _deleted(item)

        return await _empty(self.container, _EVENTS, self._named, self.partition_key, empty)

    @property
    def _named(self) -> Mapping[str, Any]:
        return {"@type": EVENT_TYPE, "@aggregateType": self.aggregate.type, "@id": self.aggregate.id}


@dataclass(frozen=True)
class ParkedEraser:
    """The discarded events of an aggregate, which are kept for a while to be looked at."""

    container: Container
    paths: PartitionKeyPaths = PARTITION_KEY
    """Of the container that the feed is of."""
    aggregate: AggregateKey | None = None
    """The only one that is looked at, where others share its partition; None: all of the partition are."""

    async def alone(self, partition_key: Key) -> Sequence[str]:
        """The ids of parked documents of this partition that belong to no aggregate. Raises as :meth:`erase` does."""
        return await self._ids(partition_key, lambda item: named(item) is None)

    async def list_left(self, partition_key: Key) -> Sequence[str]:
        """The ids of all parked documents of this partition but notices. Raises as :meth:`erase` does."""
        return await self._ids(partition_key, lambda item: not item.get("notice"))

    async def _ids(self, partition_key: Key, wanted: Callable[[Item], bool]) -> Sequence[str]:
        pages = _pages(self.container, *self._parked(partition_key, EVENT))
        return [item["id"] async for page in pages for item in page if wanted(item)]

    async def erase(self, partition_key: Key) -> int:
        """Empty the discarded events. Returns how many. Raises as :meth:`PartitionEraser.erase` does."""
        return await _empty(self.container, *self._parked(partition_key, DISCARDED), self._without_document)

    def _parked(self, partition_key: Key, kind: str) -> tuple[str, dict[str, Any], str]:
        of_partition, parameters = self.paths.condition("c.document", partition_key)
        query = f"SELECT * FROM c WHERE c.type = @type AND {of_partition}"  # noqa: S608 - paths of the declaration
        if self.aggregate is not None:
            query += " AND c.aggregateType = @aggregateType AND c.aggregateId = @id"
            parameters |= {"@aggregateType": self.aggregate.type, "@id": self.aggregate.id}
        return query, {"@type": kind, **parameters}, PARTITION

    def _without_document(self, item: Item) -> Write | None:
        return replaced(item, document=place_of(item["document"], self.paths), discardReason=ERASED)


@dataclass(frozen=True)
class SetAsideEraser:
    """The records of one subscription about an aggregate, and those that nobody could read and that name it."""

    container: Container
    subscription: str
    closed_ttl_seconds: int

    async def erase(self, aggregate_id: str) -> int:
        """Close and empty the records, and see to it that those that come are emptied. Returns how many were there.

        Raises as :meth:`PartitionEraser.erase` does.
        """
        query = "SELECT * FROM c WHERE c.aggregateId = @id OR (c.aggregateId = null AND c.body != null)"

        def empty(item: Item) -> Write | None:
            if item.get("aggregateId") is None and not record_names(item, aggregate_id):
                return None
            return emptied(item, self.closed_ttl_seconds)

        try:  # erased-keeps-nothing: before the first look
            await self.container.execute(
                self.subscription, [note(aggregate_id, self.subscription, self.closed_ttl_seconds)]
            )
        except StoreFailed as error:
            raise error.failure.error() from error
        return await _empty(self.container, query, {"@id": aggregate_id}, self.subscription, empty)


def _deleted(item: Item) -> Write:
    return Write.delete(item["id"], str(item["_etag"]))


async def _fence(container: Container, partition: Key) -> str:
    """The session token of a fence behind a look: the one before the look may be older than what was seen."""
    try:
        await container.fence(partition)
    except StoreFailed as error:
        raise error.failure.error() from error
    return container.seen(partition) or ""


async def _pages(
    container: Container, query: str, parameters: Mapping[str, Any], partition: Key
) -> AsyncIterator[Sequence[Item]]:
    """The items of a query over one partition, behind a fence. One page at a time: its documents may be large."""
    token: str | None = None
    try:
        await container.fence(partition)
        while True:
            items, token = await container.page(query, parameters, _AT_ONCE, token, partition_key=partition)
            yield items
            if token is None:
                return
    except StoreFailed as error:
        raise error.failure.error() from error


async def _empty(
    container: Container, query: str, parameters: Mapping[str, Any], partition: Key, empty: Empty
) -> int:
    """Empty what the query finds, until a look behind a fence finds nothing to empty. Returns how many."""
    done, misses = 0, 0
    while misses < _ROUNDS:
        found, before = 0, done
        async for page in _pages(container, query, parameters, partition):
            writes = [write for item in page if (write := empty(item)) is not None]
            if writes:
                found += len(writes)
                done += await _write(container, partition, writes)
        if not found:
            return done
        misses = 0 if done > before else misses + 1
    raise ConcurrentChange("others change the same documents each time: run the same command again")


async def _write(container: Container, partition: Key, writes: Sequence[Write]) -> int:
    """How many documents one transaction changed: all, or none when one of them was changed by somebody else."""
    try:
        await container.execute(partition, writes)
    except StoreFailed as error:
        if error.failure.kind not in _CHANGED:
            raise error.failure.error() from error
        _log.debug("documents have changed: they are read again")
        return 0
    return len(writes)
