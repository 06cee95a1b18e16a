"""Stores the records of messages that were set aside, and of effects: each is created once, and changed at its version.

Those that were set aside by one subscription are one logical partition. A record that exists is left as it is: the
message came again after its record was written, and perhaps closed. The body of a message is kept as it came, in
base64; a closed record has none, and expires.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, of_fields, reported
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER, Item
from cosmos_outbox.inbox.effect import EffectRecord, EffectState
from cosmos_outbox.inbox.errors import NotSetAside, RecordChanged
from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState, record_document, record_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists import continuation
from cosmos_outbox.telemetry.tracing import writing

_LISTED = (
    "id", "state", "reason", "setAsideAt", "messageId", "enqueuedNumber", "eventId", "aggregateType", "aggregateId",
    "action", "sequence", "attempts", "_etag",
)  # fmt: skip
"""All fields but the message itself: a hundred of them may have many megabytes."""
_RECORDS = of_fields(_LISTED, "SELECT * FROM c WHERE ")
_OPEN = f"{_RECORDS}ARRAY_CONTAINS(@states, c.state) ORDER BY c.setAsideAt"
_WAITING = f"{_RECORDS}c.state = @state ORDER BY c.triedAt"
_OF_ONE = f"{_RECORDS}c.state = @state AND c.aggregateId = @id AND c.aggregateType = @type"
_OLDER = f"{_RECORDS}ARRAY_CONTAINS(@states, c.state) AND c.setAsideAt < @then"
_COUNT = "SELECT COUNT(1) AS count FROM c WHERE c.state = @state"
_STATES = [state.value for state in RecordState if state.is_open]
_PAGE = 100


@dataclass(frozen=True)
class CosmosSetAside:
    """See :class:`cosmos_outbox.inbox.set_aside.SetAside`."""

    container: Container
    subscription: str
    scope: str
    """The list's name in tokens."""
    closed_ttl_seconds: int
    clock: Clock = utc_now

    async def add(self, record: Record) -> None:
        """Creates a record, without the message if the store does not take it. Raises StoreUnavailable."""
        with reported(store_away):
            try:
                await self._create(record)
            except StoreFailed as error:
                if error.failure.kind not in (Kind.TOO_LARGE, Kind.INVALID):
                    raise
                await self._create(replace(record, delivery=None))

    async def _create(self, record: Record) -> None:
        try:
            await self._execute(Write.create(self._item(record)))
        except StoreFailed as error:
            if error.failure.kind is not Kind.CONFLICT:
                raise  # created-once: else the record is there, whatever its state

    async def waits(self, aggregate: AggregateKey) -> bool:
        """Returns whether a record of the aggregate waits; reads one of however many. Raises StoreUnavailable."""
        with reported(store_away):
            await self.container.renew_token(self.subscription)
            found = await self.container.first(
                _OF_ONE, _waiting_of(aggregate), 1, partition_key=self.subscription
            )
        return found != []

    async def waiting(self, aggregate: AggregateKey | None = None) -> AsyncIterator[Record]:
        """Yields what waits; of one aggregate as of now (``timer-list-consistent``). Raises StoreUnavailable."""
        if aggregate is None:
            found = self._all(_WAITING, {"@state": RecordState.WAITING.value})
        else:
            with reported(store_away):
                await self.container.renew_token(self.subscription)
            found = self._all(_OF_ONE, _waiting_of(aggregate))
        async for record in found:
            yield record

    async def older(self, than: datetime) -> AsyncIterator[Record]:
        """Yields the open records from before then. Raises StoreUnavailable."""
        async for record in self._all(_OLDER, {"@states": _STATES, "@then": than.isoformat()}):
            yield record

    async def page(self, size: int, continuation_token: str | None) -> RecordPage:
        """Returns a page of open records. Raises UnknownContinuation, StoreUnavailable."""
        token = continuation.unseal(self.scope, continuation_token) if continuation_token else None
        try:
            items, token = await self.container.page(
                _OPEN, {"@states": _STATES}, size, token, partition_key=self.subscription
            )
        except StoreFailed as error:
            if continuation_token and error.failure.kind is Kind.INVALID:
                raise continuation.unusable() from error
            raise store_away(error.failure) from error
        return RecordPage(
            [_record(item) for item in items], continuation.seal(self.scope, token) if token else None
        )

    async def count(self, state: RecordState) -> int:
        """Returns the number of records in this state. Raises StoreUnavailable."""
        with reported(store_away):
            return await self.container.count(
                _COUNT, {"@state": state.value}, partition_key=self.subscription
            )

    async def get(self, record_id: str) -> Record:
        """Returns one record, open or closed. Raises NotSetAside, StoreUnavailable."""
        with reported(store_away):
            item = await self.container.read(record_id, self.subscription)
            if item is None:
                item = await self.container.read(record_id, self.subscription, consistent=True)
        if item is None:
            raise NotSetAside("no record has this id: take an id from the list of what is set aside")
        return _record(item)

    async def change(self, record: Record, state: RecordState, reason: str, *, attempts: int) -> None:
        """Writes the outcome of a record. Raises RecordChanged, StoreUnavailable."""
        assert record.version is not None, "a record that was read has its version"
        changed = replace(record, state=state, reason=reason, attempts=attempts)
        try:
            await self._execute(Write.replace(self._item(changed), record.version))
        except StoreFailed as error:
            if error.failure.kind in (Kind.STALE, Kind.MISSING):
                raise RecordChanged("somebody else changed the record: read it again") from error
            raise store_away(error.failure) from error

    async def _execute(self, write: Write) -> None:
        await self.container.execute(self.subscription, [write])

    async def _all(self, query: str, parameters: Mapping[str, Any]) -> AsyncIterator[Record]:
        with reported(store_away):
            async for items in self.container.pages(
                query, parameters, _PAGE, partition_key=self.subscription
            ):
                for item in items:
                    yield _record(item)

    def _item(self, record: Record) -> Item:
        return {
            **record_document(record, self.subscription),
            "partitionKey": self.subscription,
            "type": "setAside",
            "triedAt": self.clock().isoformat(),
            "ttl": KEEP_FOR_EVER if record.state.is_open else self.closed_ttl_seconds,
        }


def _waiting_of(aggregate: AggregateKey) -> dict[str, Any]:
    return {"@state": RecordState.WAITING.value, "@id": aggregate.id, "@type": aggregate.type}


def _record(item: Item) -> Record:
    return record_of(item, str(item["_etag"]))


@dataclass(frozen=True)
class CosmosEffects:
    """See :class:`cosmos_outbox.inbox.effect.EffectRecords`. Several subscribers may have one container."""

    container: Container
    subscriber: str
    ttl_seconds: int

    async def find(self, event_id: str) -> EffectRecord | None:
        """Returns the newest record; None proves that there is none. Raises StoreUnavailable."""
        key = self._key(event_id)
        with reported(store_away):
            item = await self.container.read(key, key, consistent=True)
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
        try:
            with writing("effects"):
                [version] = await self.container.execute(key, [Write.put(document, record.version)])
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE, Kind.MISSING):
                raise RecordChanged("the record of an effect was changed: read it again") from error
            raise store_away(error.failure) from error
        return replace(record, version=version)

    def _key(self, event_id: str) -> str:
        """Returns the id of the document, and its partition key."""
        return hashlib.sha256(json.dumps([self.subscriber, event_id]).encode()).hexdigest()
