"""Parked events and the aggregates that they block change together: all are in one logical partition of one container.

A parked aggregate has a document of its own, the marker. Parking more events replaces the marker at the version that
was read, and a release deletes the marker at the version that was read, so that neither can miss the other. Each event
keeps its place in the feed in ``position``, and is replayed in that order.

The relay reads the markers before it sends. A lagging replica would show that there is no marker, too: so the markers
are read behind a fence, a write that is refused and whose answer carries the newest session token. The fence costs one
round trip for each page of the feed.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from infra.cosmos import continuation
from infra.cosmos.container import Container, StoreFailed, Write
from infra.cosmos.documents import Item
from infra.cosmos.errors import Kind
from infra.cosmos.parked_documents import (
    DISCARDED,
    EVENT,
    PARTITION,
    ParkedDocuments,
    chunks,
    marker_id,
    without_document,
)
from outbox.aggregate import AggregateKey
from outbox.errors import PreconditionFailed
from outbox.feed import FeedEvent, Poison
from outbox.parking_lot import ParkedAggregate, ParkedEvent, ParkedPage
from outbox.unit_of_work import Clock, utc_now

_MARKERS = "SELECT * FROM c WHERE ARRAY_CONTAINS(@types, c.type)"
_EVENTS = "SELECT * FROM c WHERE c.type = @type ORDER BY c.parkedAt"
_WAITING = "SELECT * FROM c WHERE c.type = @type AND c.{owner} = @aggregateId ORDER BY c.position"


class CosmosParkingLot:
    """See :class:`outbox.parking_lot.ParkingLot`."""

    def __init__(
        self,
        container: Container,
        scope: str,
        documents: ParkedDocuments,
        *,
        discarded_ttl_seconds: int,
        clock: Clock = utc_now,
    ) -> None:
        self._container = container
        self._scope = scope
        self._documents = documents
        self._discarded_ttl = discarded_ttl_seconds
        self._clock = clock

    async def aggregates(self) -> Mapping[AggregateKey, ParkedAggregate]:
        """The parked aggregates by type and id, read behind a fence: no marker that anyone has written is missed."""
        try:
            await self._container.fence(PARTITION)
        except StoreFailed as error:
            raise error.failure.error() from error
        types = self._documents.marker_types
        found = [self._documents.aggregate(item) async for item in self._all(_MARKERS, {"@types": types})]
        return {parked.aggregate: parked for parked in found}

    async def aggregate(self, aggregate: AggregateKey) -> ParkedAggregate | None:
        """One aggregate, if it is parked."""
        item = await self._read(marker_id(aggregate))
        return None if item is None else self._documents.aggregate(item)

    async def park(self, parked: ParkedAggregate, events: Sequence[FeedEvent]) -> None:
        """Park events of an aggregate. Raises PreconditionFailed when the marker is not at ``parked.version``."""
        marker, version, now = self._documents.marker_item(parked), parked.version, self._clock()
        for chunk in chunks([self._documents.event_item(event, parked, at=now) for event in events]):
            first = Write.replace(marker, version) if version else Write.create(marker)
            try:
                version, *_ = await self._write(first, *map(Write.upsert, chunk))
            except StoreFailed as error:
                if error.failure.kind is not Kind.TOO_LARGE:
                    raise error.failure.error() from error
                version, *_ = await self._write(
                    first, *(Write.upsert(without_document(item)) for item in chunk)
                )

    async def park_alone(self, poison: Poison) -> None:
        """Park a document that belongs to no aggregate."""
        item = self._documents.event_item(poison, None, at=self._clock())
        try:
            await self._write(Write.upsert(item))
        except StoreFailed as error:
            if error.failure.kind is not Kind.TOO_LARGE:
                raise error.failure.error() from error
            await self._store(Write.upsert(without_document(item)))

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        """A page of parked events, oldest first. Raises UnknownContinuation."""
        token = continuation.unseal(self._scope, continuation_token) if continuation_token else None
        try:
            items, token = await self._container.page(
                _EVENTS, {"@type": EVENT}, size, token, partition_key=PARTITION
            )
        except StoreFailed as error:
            if continuation_token and error.failure.kind is Kind.INVALID:
                raise continuation.unusable() from error
            raise error.failure.error() from error
        return ParkedPage(
            [self._documents.event(item) for item in items],
            continuation.seal(self._scope, token) if token else None,
        )

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """One parked event; None when no event is parked under the id."""
        item = await self._read(parking_id)
        return self._documents.event(item) if item is not None and item["type"] == EVENT else None

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """An aggregate's first parked events, in order."""
        query = _WAITING.format(owner=self._documents.owner_field(aggregate))
        parameters = {"@type": EVENT, "@aggregateId": aggregate.id}
        found: list[tuple[ParkedEvent, FeedEvent]] = []
        async for item in self._all(query, parameters, size=limit):
            parked = self._documents.event(item)
            if parked.aggregate == aggregate:  # aggregates of two types may have one id
                found.append((parked, self._documents.feed_event(parked)))
            if len(found) == limit:
                break
        return found

    async def remove(self, parked: Sequence[ParkedEvent]) -> None:
        """Remove events that were delivered; another replay may have been faster."""
        if not parked:
            return
        try:
            await self._write(*(Write.delete(event.id) for event in parked))
        except StoreFailed as error:
            if error.failure.kind is not Kind.MISSING:
                raise error.failure.error() from error
            half = len(parked) // 2  # one event is gone already: halving finds the others
            await self.remove(parked[:half])
            await self.remove(parked[half:] if half else ())

    async def move_block(self, parked: ParkedAggregate) -> None:
        """Store which event cannot be sent now. Raises PreconditionFailed."""
        await self._store(Write.replace(self._documents.marker_item(parked), parked.version))

    async def discard(self, parked: ParkedEvent, reason: str) -> None:
        """Keep the event as discarded until it expires."""
        item = await self._read(parked.id)
        if item is None or item["type"] != EVENT:
            return  # another operator was faster
        discarded = {name: value for name, value in item.items() if not name.startswith("_")} | {
            "type": DISCARDED,
            "discardedAt": self._clock().isoformat(),
            "discardReason": reason,
            "ttl": self._discarded_ttl,
        }
        await self._store(Write.replace(discarded, item["_etag"]))

    async def release(self, parked: ParkedAggregate) -> bool:
        """Delete the marker at the version that was read; False: the marker has changed since."""
        try:
            await self._store(Write.delete(marker_id(parked.aggregate), parked.version))
        except PreconditionFailed:
            return False
        return True

    async def _all(
        self, query: str, parameters: Mapping[str, Any], *, size: int = 1000
    ) -> AsyncIterator[Item]:
        token: str | None = None
        while True:
            try:
                items, token = await self._container.page(
                    query, parameters, size, token, partition_key=PARTITION
                )
            except StoreFailed as error:
                raise error.failure.error() from error
            for item in items:
                yield item
            if token is None:
                return

    async def _read(self, item_id: str) -> Item | None:
        try:
            return await self._container.read(item_id, PARTITION)
        except StoreFailed as error:
            raise error.failure.error() from error

    async def _store(self, *writes: Write) -> list[str]:
        """As :meth:`_write`, but every failure becomes an error of the outbox or Misconfigured."""
        try:
            return await self._write(*writes)
        except StoreFailed as error:
            raise error.failure.error() from error

    async def _write(self, *writes: Write) -> list[str]:
        """One transaction. Raises PreconditionFailed when another writer was faster, StoreFailed for other failures."""
        try:
            return await self._container.execute(PARTITION, writes)
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE) or (
                error.failure.kind is Kind.MISSING and writes[0].if_match is not None
            ):
                raise PreconditionFailed(
                    "another instance or operator changed the parked aggregate: read it again"
                ) from error
            raise
