"""The effects of one aggregate are in one logical partition: a marker, and a mark for each event, changed in one batch.

The marker and what waits have no TTL: a marker that expired would let an old event run as a new one. A mark that is
over, or was started from a message, expires after the ids' time; by then its event is too old to be run.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.relay.marker_documents import marker_id
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.item import KEEP_FOR_EVER, Item
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.effect import EffectMarker, Mark, SeenMark
from cosmos_outbox.inbox.errors import RecordChanged, Unstorable
from cosmos_outbox.inbox.stored import effect_id, mark_document, mark_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.telemetry.tracing import writing

_MARKER = "marker"
_WAITING = "SELECT * FROM c WHERE c.holds = true ORDER BY c.place"
_WAIT = "SELECT * FROM c WHERE c.subscriber = @subscriber AND c.waiting > 0"
_BY_TIME = f"{_WAIT} AND c._ts >= @since ORDER BY c._ts"
_OF_ONE_SECOND = f"{_WAIT} AND c._ts = @second"
_NO_PLACE = 2**53
"""After all places: an event without a sequence holds up nobody."""

_MARKS_AT_ONCE, _AGGREGATES_AT_ONCE = 100, 1000
_CHANGED = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}


@dataclass(frozen=True)
class CosmosLedger:
    """See :class:`cosmos_outbox.inbox.ledger.Ledger`. Several subscribers may have one container."""

    container: Container
    subscriber: str
    ids_ttl_seconds: int

    async def read(self, key: AggregateKey, event_id: str, *, fenced: bool) -> SeenMark:
        """An aggregate's marker and one mark. Raises StoreAway."""
        partition = self._partition(key)
        try:
            if fenced:
                await self.container.fence(partition)
            marker, mark = await asyncio.gather(
                self.container.read(_MARKER, partition), self.container.read(mark_id(event_id), partition)
            )
        except StoreFailed as error:
            raise store_away(error.failure) from error
        return SeenMark(_marker(marker) if marker else EffectMarker(), _mark(key, mark) if mark else None)

    async def write(self, key: AggregateKey, marker: EffectMarker, mark: Mark) -> SeenMark:
        """Store both. Raises RecordChanged, Unstorable, StoreAway."""
        items = self._marker_item(key, marker), self._mark_item(key, mark)
        writes = [
            Write.create(item) if version is None else Write.replace(item, version)
            for item, version in zip(items, (marker.version, mark.version), strict=True)
        ]
        try:
            with writing("mark"):
                versions = await self.container.execute(self._partition(key), writes)
        except StoreFailed as error:
            if error.failure.kind in _CHANGED:
                raise RecordChanged(f"the effects of {key} were changed: read them again") from error
            if error.failure.kind in (Kind.TOO_LARGE, Kind.INVALID):
                raise Unstorable(
                    f"the store does not take event {mark.event_id} of {key} as it is: {error.failure.detail}"
                ) from error
            raise store_away(error.failure) from error
        return SeenMark(replace(marker, version=versions[0]), replace(mark, version=versions[1]))

    async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
        """The first marks that hold an event. Raises StoreAway."""
        partition = self._partition(key)
        try:
            await self.container.fence(partition)
            items = await self.container.first(_WAITING, {}, _MARKS_AT_ONCE, partition_key=partition)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        return [_mark(key, item) for item in items]

    async def aggregates(self) -> AsyncIterator[AggregateKey]:
        """The aggregates of which something waits, the one that was written last comes last. Raises StoreAway.

        A query that is ordered over several partitions gives no token to go on from. So the next one begins after the
        last second that was seen, of which all are read without order.
        """
        since, told = 0, set[str]()
        while True:
            items = await self._first(since)
            whole = len(items) < _AGGREGATES_AT_ONCE
            if not whole:
                last = items[-1]["_ts"]
                items = [item for item in items if item["_ts"] < last] + await self._of_second(last)
                since = last + 1
            for item in items:
                if item["partitionKey"] not in told:  # else it was written meanwhile
                    told.add(item["partitionKey"])
                    yield AggregateKey(item["aggregateType"], item["aggregateId"])
            if whole:
                return

    async def _first(self, since: int) -> list[Item]:
        parameters = {"@subscriber": self.subscriber, "@since": since}
        try:
            return await self.container.first(_BY_TIME, parameters, _AGGREGATES_AT_ONCE)
        except StoreFailed as error:
            raise store_away(error.failure) from error

    async def _of_second(self, second: int) -> list[Item]:
        found: list[Item] = []
        token: str | None = None
        parameters = {"@subscriber": self.subscriber, "@second": second}
        while True:
            try:
                items, token = await self.container.page(
                    _OF_ONE_SECOND, parameters, _AGGREGATES_AT_ONCE, token
                )
            except StoreFailed as error:
                raise store_away(error.failure) from error
            found += items
            if token is None:
                return found

    def _partition(self, key: AggregateKey) -> str:
        return f"{self.subscriber}/{marker_id(key)}"

    def _marker_item(self, key: AggregateKey, marker: EffectMarker) -> Item:
        return {
            "id": _MARKER,
            "partitionKey": self._partition(key),
            "type": "effectMarker",
            "subscriber": self.subscriber,
            "aggregateType": key.type,
            "aggregateId": key.id,
            "lastSequence": marker.last,
            "waiting": marker.waiting,
            "running": marker.running,
            "ttl": KEEP_FOR_EVER,
        }

    def _mark_item(self, key: AggregateKey, mark: Mark) -> Item:
        return {
            "id": mark_id(mark.event_id),
            "partitionKey": self._partition(key),
            "type": "effectMark",
            "subscriber": self.subscriber,
            "aggregateType": key.type,
            "aggregateId": key.id,
            "effectId": effect_id(self.subscriber, key, mark.event_id),
            "place": _NO_PLACE if mark.sequence is None else mark.sequence,
            **mark_document(mark),
            "ttl": self.ids_ttl_seconds if mark.waits is None else KEEP_FOR_EVER,
        }


def mark_id(event_id: str) -> str:
    """An id that the store takes, whatever the event's id is."""
    return f"event-{hashlib.sha256(event_id.encode()).hexdigest()[:32]}"


def _marker(item: Item) -> EffectMarker:
    return EffectMarker(item["lastSequence"], item["waiting"], item["running"], str(item["_etag"]))


def _mark(key: AggregateKey, item: Item) -> Mark:
    return mark_of(key, item, str(item["_etag"]))
