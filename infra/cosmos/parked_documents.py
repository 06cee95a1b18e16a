"""Parked events and notices as Cosmos items, and back: no I/O, and the only place that knows the shape of the items."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.cosmos.documents import EventReader, Item, notice_document
from infra.cosmos.marker_documents import Owners
from infra.cosmos.stored_values import is_text, plain
from outbox.feed import FeedEvent, OutboxEvent, Poison
from outbox.marker import Marker, Place
from outbox.notice import ACTION, Notice
from outbox.parking_lot import Discarding, ParkedEvent, State

PARTITION = "parked"
EVENT, DISCARDED = "parkedEvent", "discardedEvent"
_BATCH, _BATCH_BYTES = 40, 900_000
"""The most events in one transaction, and the most bytes; a single event may have more."""
_LONGEST_KEY = 2048
"""Of a partition key (https://learn.microsoft.com/azure/cosmos-db/concepts-limits)."""


@dataclass(frozen=True)
class ParkedDocuments:
    """Writes and reads the items of parked events."""

    events: EventReader
    owners: Owners

    def event_item(self, event: FeedEvent, marker: Marker, place: Place, *, at: datetime) -> Item:
        """The item of an event that is parked ``at`` this time (UTC), behind the marker."""
        return self._item(event, _reason(event, marker), at) | {"position": _position(place)}

    def alone_item(self, poison: Poison, *, at: datetime) -> Item:
        """The item of a document that belongs to no aggregate."""
        return self._item(poison, poison.reason, at)

    def _item(self, event: FeedEvent, reason: str, at: datetime) -> Item:
        return {
            "id": _digest(event.document.get("partitionKey"), event.id),
            "partitionKey": PARTITION,
            "type": EVENT,
            "eventId": event.id,
            **self.owners.fields(event.aggregate),
            "action": event.action if isinstance(event, OutboxEvent) else None,
            "sequence": event.sequence,
            "reason": reason,
            "parkedAt": at.isoformat(),
            "document": _kept(event.document),
        }

    def notice_item(self, notice: Notice, discarded: Item) -> Item:
        """The item of the notice that takes the place of an event's item."""
        document = notice_document(notice, partition_key=discarded["document"].get("partitionKey"))
        return {
            "id": _digest("notice", discarded["id"]),
            "partitionKey": PARTITION,
            "type": EVENT,
            "notice": True,
            "eventId": notice.id,
            **self.owners.fields(notice.aggregate),
            "action": ACTION,
            "sequence": notice.sequence,
            "position": discarded["position"],
            "reason": f"stands in the place of event {notice.discarded_event_id}, which was discarded",
            "parkedAt": notice.created_at.isoformat(),
            "document": document,
        }

    def discarded_item(self, item: Item, reason: str, *, at: datetime, ttl: int) -> Item:
        """The item of an event that is given up; it expires ``ttl`` seconds after it is written."""
        stored = {name: value for name, value in item.items() if not name.startswith("_")}
        return stored | {
            "type": DISCARDED,
            "discardedAt": at.isoformat(),
            "discardReason": reason,
            "ttl": ttl,
        }

    def event(self, item: Item, marker: Marker | None) -> ParkedEvent:
        """The parked event in an item that was read; ``marker``: its aggregate's, if it is known."""
        aggregate = self.owners.key(item)
        refusal = marker.refusal if marker else None
        refused = refusal if refusal and refusal.event_id == item["eventId"] else None
        state = State.WAITING
        if item["type"] == DISCARDED:
            state = State.DISCARDED
        elif aggregate is None:
            state = State.ALONE
        elif marker and marker.in_the_way == item["eventId"]:
            state = State.IN_THE_WAY
        return ParkedEvent(
            id=item["id"],
            event_id=item["eventId"],
            aggregate=aggregate,
            action=item["action"],
            sequence=item["sequence"],
            reason=refused.reason if refused else item["reason"],
            parked_at=datetime.fromisoformat(item["parkedAt"]),
            state=state,
            attempts=refused.attempts if refused else 0,
            attempted_at=refused.at if refused else None,
            discarding=_discarding(item),
            is_notice=bool(item.get("notice")),
            document=item["document"],
        )

    def feed_event(self, parked: ParkedEvent) -> FeedEvent:
        """The event as the feed delivered it, or the notice, to be sent by a replay."""
        event = self.events.event(parked.document)
        return event or Poison(parked.event_id, parked.aggregate, "the store did not take the document")


def _discarding(item: Mapping[str, Any]) -> Discarding | None:
    if item["type"] != DISCARDED:
        return None
    return Discarding(datetime.fromisoformat(item["discardedAt"]), item["discardReason"])


def _reason(event: FeedEvent, marker: Marker) -> str:
    if isinstance(event, Poison):
        return event.reason
    if marker.refusal is None:
        return "waits until the aggregate is replayed"
    if marker.refusal.event_id == event.id:
        return marker.refusal.reason
    return f"waits behind event {marker.refusal.event_id}"


def _position(place: Place) -> str:
    """The place as a text that sorts as the place does, and behind the places of a version that had other texts."""
    after, unsequenced, (lsn, created_at, event_id) = place
    text = f"1{after:019d}"
    return f"{text}-1-{lsn:020d}-{created_at}-{event_id}" if unsequenced else f"{text}-0"


def _digest(*parts: Any) -> str:
    """An event's id is unique only in its partition, and a broken document may have any id."""
    return hashlib.sha256(b"[%b]" % b", ".join(map(plain, parts))).hexdigest()[:32]


def _kept(document: Mapping[str, Any]) -> Item:
    """The document, if there is a form of it to be stored."""
    try:
        json.dumps(dict(document))
    except (ValueError, TypeError, RecursionError):
        return _where(document)
    return dict(document)


def _where(document: Mapping[str, Any]) -> Item:
    """Where the document is, in values that every store takes."""
    place = {name: document.get(name) for name in ("id", "partitionKey")}
    return {
        name: value if is_text(value) and len(value) <= _LONGEST_KEY else None
        for name, value in place.items()
    }


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
    """The item of a parked event without the document, which the store does not take inside this item."""
    reason = f"{item['reason']} (the store does not take the document here: see the container of the feed)"
    return item | {"document": _where(item["document"]), "reason": reason}
