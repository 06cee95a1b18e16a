"""Verifies events against their digest: one that does not match is read again, so that it is sent as committed.

The Cosmos DB trigger of Azure Functions rewrites texts that look like dates (azure-functions-host issue 7114). A
document without a digest, stored by others, cannot be distinguished from a rewritten one, and is always
read again. A read proves that a document is there; that a document is gone is proven by a write's own answer alone.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import DIGEST, EventReader, digest, is_as_committed
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key, PartitionKeyPaths
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle, pace
from cosmos_outbox.outbox.errors import hindrance
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison, Unread

AT_ONCE = 8
"""The number of documents that are read at the same time."""

_KEPT = 2000
"""The number of documents that are cached for the next attempt at their pages."""

_NO_NAME = "its id or its partition key cannot be one"

_Place = tuple[Key, str]
"""Partition key and id of a document."""

_log = logging.getLogger(__name__)


@dataclass
class CosmosOriginals:
    """Returns events as they were committed."""

    container: Container
    events: EventReader
    reread: int = 0
    """The number of documents read again since the process began."""
    throttle: LogThrottle = field(default_factory=LogThrottle)
    _kept: OrderedDict[_Place, FeedEvent] = field(default_factory=OrderedDict, repr=False)

    @property
    def _paths(self) -> PartitionKeyPaths:
        return self.events.paths

    async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """Returns the same events in the same order, each as it was committed.

        An event is returned as Poison if its original is proven missing or does not match its digest either, and as
        Unread if its original cannot be read now. An unavailable store raises no error.
        """
        places = asyncio.Semaphore(AT_ONCE)

        async def one(event: FeedEvent) -> FeedEvent:
            async with places:
                return await self._read_committed(event.event if isinstance(event, Unread) else event)

        before = self.reread
        verified = list(events)
        doubtful = [
            place
            async for some in pace(enumerate(events))
            for place, event in some
            if not (isinstance(event, OutboxEvent) and is_as_committed(event.document, self._paths))
        ]
        for place, event in zip(
            doubtful, await asyncio.gather(*(one(events[place]) for place in doubtful)), strict=True
        ):
            verified[place] = event
        if self.reread > before and self.throttle.due():
            _log.info(
                "read %d of %d event(s) again: the host delivered other texts than were committed, or the documents "
                "have no digest; %d since the process began",
                self.reread - before,
                len(events),
                self.reread,
            )
        return verified

    def forget(self, events: Sequence[FeedEvent]) -> None:
        """Drops what was read of these events: they are done, or must be read again."""
        for event in events:
            if (place := _place(event.document, self._paths)) is not None:
                self._kept.pop(place, None)

    async def _read_committed(self, delivered: OutboxEvent | Poison) -> FeedEvent:
        place = _place(delivered.document, self._paths)
        if place is None:  # nothing can be read
            return _unverified(delivered, _NO_NAME)
        if place in self._kept:
            return self._kept[place]
        try:
            item = await self._read(place)
        except StoreFailed as error:
            if error.failure.kind is Kind.INVALID:
                return _unverified(delivered, _NO_NAME)
            why = error.failure.error()
            return Unread.of(delivered, f"an event's original cannot be read: {why}", hindrance(why))
        except ValueError:  # the SDK sends no request for such names
            return _unverified(delivered, _NO_NAME)
        if item is None:
            found: FeedEvent = _unverified(
                delivered, "what was delivered is not what was committed, and that is gone"
            )
        else:
            found = self._as_read(delivered, item)
        self._kept[place] = found
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found

    async def _read(self, place: _Place) -> Item | None:
        """Returns the committed document; None if it is proven gone."""
        partition_key, item_id = place
        self.reread += 1
        item = await self.container.read(item_id, partition_key)
        if item is None:
            item = await self.container.read(item_id, partition_key, consistent=True)
        return item

    def _as_read(self, delivered: OutboxEvent | Poison, item: Item) -> FeedEvent:
        document = item | {"_lsn": delivered.lsn}  # only the feed has it
        if DIGEST in item and not is_as_committed(item, self._paths):
            return _unverified(delivered, "its digest does not fit it, neither as delivered nor as stored")
        event = self.events.event(document)
        if event is None:
            return _unverified(delivered, "the stored document is no event any more")
        if DIGEST in item or isinstance(event, Poison):
            return event
        try:  # a digest distinguishes the document from a rewritten one later, should it be parked
            return self.events.event(document | {DIGEST: digest(document, self._paths)}) or event
        except ValueError:
            return event


def _place(document: Mapping[str, Any], paths: PartitionKeyPaths) -> _Place | None:
    partition_key, item_id = paths.of(document), document.get("id")
    if partition_key is not None and isinstance(item_id, str) and item_id:
        return partition_key, item_id
    return None


def _unverified(delivered: OutboxEvent | Poison, reason: str) -> Poison:
    """Returns an event that cannot be verified; a broken one keeps its own reason, which is more precise."""
    if isinstance(delivered, Poison):
        return delivered
    return Poison(**delivered.stored(), reason=f"unverified: {reason}")
