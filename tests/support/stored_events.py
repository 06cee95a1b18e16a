"""The publisher's stored events in a real store, and what its relay holds back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.event_source import CosmosEventSource
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.effect import HeldBack
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.marker import Marker


@dataclass
class StoredEvents:
    """As :class:`tests.support.effects.FakeEvents`. ``read`` may lag, what is written does not."""

    write: Container
    read: Container
    parked: Container
    key: AggregateKey
    queries: int = 0

    async def put(self, event: Event) -> None:
        data = {
            "id": event.id, "action": event.action, "sequence": event.sequence,
            "createdAt": event.created_at.isoformat(), f"{event.aggregate.type}Id": event.aggregate.id, **event.data,
        }  # fmt: skip
        item = {
            "id": event.id, "partitionKey": event.aggregate.id, "type": "domainEvent",
            "aggregateType": event.aggregate.type, "data": data,
        }  # fmt: skip
        await self.write.execute(event.aggregate.id, [Write.upsert(item)])

    async def forget(self, event: Event) -> None:
        await self.write.execute(event.aggregate.id, [Write.delete(event.id)])

    async def hold(self, held: HeldBack) -> None:
        found = (await self._lot.markers([self.key])).get(self.key, Marker(self.key))
        since = None if held.after is None else datetime.now().astimezone()
        await self._lot.store(
            Marker(
                self.key,
                version=found.version,
                blocked_since=since,
                accepted=held.after or 0,
                discarded=dict.fromkeys(held.discarded, datetime.now().astimezone()),
            )
        )

    async def events(
        self, key: AggregateKey, places: range, since: datetime | None, *, fenced: bool
    ) -> Sequence[Event]:
        self.queries += 1
        return await self._source.events(key, places, since, fenced=fenced)

    async def held(self, key: AggregateKey) -> HeldBack:
        return await self._source.held(key)

    async def last(self, key: AggregateKey) -> int | None:
        return await self._source.last(key)

    @property
    def _lot(self) -> CosmosParkingLot:
        return CosmosParkingLot(self.parked, "test", ParkedDocuments(EventReader()), ttl_seconds=3600)

    @property
    def _source(self) -> CosmosEventSource:
        documents, feed = SourceDocuments.of_library(self.key.type), None
        unused: Any = feed
        return CosmosEventSource(self.read, unused, EventReader(), self._lot, documents, "/test", own=False)
