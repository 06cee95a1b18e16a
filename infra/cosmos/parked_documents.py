"""Parked events and markers as Cosmos items, and back: no I/O, and the only place that knows the items' shape."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.cosmos.documents import EventReader, Item
from outbox.aggregate import AggregateKey
from outbox.feed import FeedEvent, OutboxEvent, Poison, Position
from outbox.parking_lot import ParkedAggregate, ParkedEvent

PARTITION = "parked"
MARKER, EVENT, DISCARDED = "parkedAggregate", "parkedEvent", "discardedEvent"
_BATCH, _BATCH_BYTES = 40, 900_000
"""The most events in one transaction, and the most bytes; a single event may have more."""

_PLAIN_TYPE, _PLAIN_ID = re.compile(r"[A-Za-z0-9]+"), re.compile(r"[A-Za-z0-9._-]+")
"""Types and ids that may stand in an item's id; any other is hashed."""


@dataclass(frozen=True)
class StoredNames:
    """The names in parked documents of one aggregate type that were stored before documents told their type.

    The old names are still written beside the new ones, so that the version before can read the documents.
    """

    aggregate_type: str
    marker: str
    """The ``type`` of a marker."""
    owner: str
    """The field with the aggregate's id."""


@dataclass(frozen=True)
class ParkedDocuments:
    """Writes and reads the parking lot's items. ``stored_names``: the old names of the one type that has them."""

    events: EventReader
    stored_names: StoredNames | None = None

    @property
    def marker_types(self) -> list[str]:
        """The ``type`` of every marker that can be stored."""
        return [MARKER, *([self.stored_names.marker] if self.stored_names else [])]

    def owner_field(self, aggregate: AggregateKey) -> str:
        """The field with the aggregate's id, in every parked document of this aggregate."""
        names = self._names_of(aggregate)
        return names.owner if names else "aggregateId"

    def _names_of(self, aggregate: AggregateKey | None) -> StoredNames | None:
        names = self.stored_names
        return names if names and aggregate and aggregate.type == names.aggregate_type else None

    def _owner(self, aggregate: AggregateKey | None) -> Item:
        """The fields that name a document's aggregate, in all names that its readers know."""
        owner: Item = {
            "aggregateType": aggregate.type if aggregate else None,
            "aggregateId": aggregate.id if aggregate else None,
        }
        names = self._names_of(aggregate) if aggregate else self.stored_names
        if names:
            owner[names.owner] = owner["aggregateId"]
        return owner

    def _key(self, item: Item) -> AggregateKey | None:
        if item.get("aggregateType") is not None:
            return AggregateKey(item["aggregateType"], item["aggregateId"])
        if self.stored_names and item.get(self.stored_names.owner) is not None:
            return AggregateKey(self.stored_names.aggregate_type, item[self.stored_names.owner])
        return None

    def marker_item(self, parked: ParkedAggregate) -> Item:
        """The marker of a parked aggregate."""
        names = self._names_of(parked.aggregate)
        return {
            "id": marker_id(parked.aggregate),
            "partitionKey": PARTITION,
            "type": names.marker if names else MARKER,
            **self._owner(parked.aggregate),
            "blockedBy": parked.blocked_by,
            "reason": parked.reason,
            "position": _position_text(parked.position),
        }

    def aggregate(self, item: Item) -> ParkedAggregate:
        """The parked aggregate in a marker that was read."""
        key = self._key(item)
        assert key is not None, "a marker names its aggregate"
        return ParkedAggregate(
            key, item["blockedBy"], item["reason"], _position(item["position"]), str(item["_etag"])
        )

    def event_item(self, event: FeedEvent, parked: ParkedAggregate | None, *, at: datetime) -> Item:
        """The item of an event that is parked ``at`` this time (UTC); ``parked`` None: the event has no aggregate."""
        valid = event if isinstance(event, OutboxEvent) else None
        return {
            "id": _parking_id(event),
            "partitionKey": PARTITION,
            "type": EVENT,
            "eventId": event.id,
            **self._owner(event.aggregate),
            "action": valid.action if valid else None,
            "sequence": valid.sequence if valid else None,
            "position": _position_text(event.position),
            "reason": _reason(event, parked),
            "parkedAt": at.isoformat(),
            "document": dict(event.document),
        }

    def event(self, item: Item) -> ParkedEvent:
        """The parked event in an item that was read."""
        return ParkedEvent(
            id=item["id"],
            event_id=item["eventId"],
            aggregate=self._key(item),
            action=item["action"],
            sequence=item["sequence"],
            reason=item["reason"],
            parked_at=datetime.fromisoformat(item["parkedAt"]),
            document=item["document"],
        )

    def feed_event(self, parked: ParkedEvent) -> FeedEvent:
        """The event as the feed delivered it, to be sent by a replay."""
        event = self.events.event(parked.document)
        return event or Poison(parked.event_id, parked.aggregate, "the document was too large to keep")


def marker_id(aggregate: AggregateKey) -> str:
    """The id of an aggregate's marker."""
    if _PLAIN_TYPE.fullmatch(aggregate.type) and _PLAIN_ID.fullmatch(aggregate.id):
        return f"{aggregate.type}-{aggregate.id}"
    return f"aggregate.{_digest([*aggregate])}"


def _reason(event: FeedEvent, parked: ParkedAggregate | None) -> str:
    if isinstance(event, Poison):
        return event.reason
    if parked is None or parked.blocked_by == event.id:
        return parked.reason if parked else ""
    return f"waits behind event {parked.blocked_by}"


def _parking_id(event: FeedEvent) -> str:
    """A digest: an event's id is unique only in its partition, and a broken document may have any id."""
    return _digest([event.document.get("partitionKey"), event.id])


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _position_text(position: Position) -> str:
    """The position as a text that sorts as the position does."""
    return "-".join(f"{part:020d}" for part in position)


def _position(text: str) -> Position:
    lsn, _, sequence = text.partition("-")
    return int(lsn), int(sequence)


def chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The items in order, in parts that fit one transaction; a part of a single item may be larger."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        weight = len(json.dumps(item))
        if chunk and (len(chunk) == _BATCH or size + weight > _BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += weight
    if chunk:
        yield chunk


def without_document(item: Item) -> Item:
    """The item of a parked event without the document, which is too large to be stored a second time."""
    where = {name: item["document"].get(name) for name in ("id", "partitionKey")}
    reason = f"{item['reason']} (the document is too large to be kept here: see the container of the feed)"
    return item | {"document": where, "reason": reason}
