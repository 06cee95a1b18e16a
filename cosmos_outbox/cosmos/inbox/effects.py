"""Stores the record of one event's effect: one document, created or replaced at its version; a write renews its TTL."""

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime

from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.inbox.effect import EffectRecord, EffectState
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.telemetry.tracing import writing


@dataclass(frozen=True)
class CosmosEffects:
    """See :class:`cosmos_outbox.inbox.effect.EffectRecords`. Several subscribers may have one container."""

    container: Container
    subscriber: str
    ttl_seconds: int

    async def find(self, event_id: str) -> EffectRecord | None:
        """Returns the newest record; None proves that there is none. Raises StoreUnavailable."""
        key = self._key(event_id)
        try:
            item = await self.container.read(key, key, consistent=True)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        if item is None:
            return None
        at = datetime.fromisoformat(item["at"])
        return EffectRecord(event_id, EffectState(item["state"]), at, item["call"], str(item["_etag"]))

    async def write(self, record: EffectRecord) -> EffectRecord:
        """Creates it, or replaces it at its version. Raises RecordChanged, StoreUnavailable."""
        key = self._key(record.event_id)
        document = {
            "id": key,
            "partitionKey": key,
            "type": "effect",
            "subscriber": self.subscriber,
            "eventId": record.event_id,
            "state": record.state.value,
            "at": record.at.isoformat(),
            "call": record.call,
            "ttl": self.ttl_seconds,
        }
        write = Write.create(document) if record.version is None else Write.replace(document, record.version)
        try:
            with writing("effects"):
                [version] = await self.container.execute(key, [write])
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE, Kind.MISSING):
                raise RecordChanged("the record of an effect was changed: read it again") from error
            raise store_away(error.failure) from error
        return replace(record, version=version)

    def _key(self, event_id: str) -> str:
        """Returns the id of the document, and its partition key."""
        return hashlib.sha256(json.dumps([self.subscriber, event_id]).encode()).hexdigest()
