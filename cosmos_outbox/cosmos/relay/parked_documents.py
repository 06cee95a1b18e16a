"""Converts parked events, skip markers and blocks to Cosmos items, and back: no I/O; no other module knows their shape.

An aggregate has one block, under an id that is derived from its key.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EventReader, skip_marker_document
from cosmos_outbox.cosmos.store.partition_key import LONGEST_KEY, Item, PartitionKeyPaths, is_text, plain
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate_block import AggregateBlock, Place, Refusal
from cosmos_outbox.outbox.feed import ACTION, Document, FeedEvent, OutboxEvent, Poison, SkipMarker


class ParkedState(Enum):
    """The state of a parked event."""

    IN_THE_WAY = "inTheWay"
    """The broker refused the event: remove the reason and replay the aggregate, or discard the event."""
    WAITING = "waiting"
    """The event waits behind a blocking event, and is sent after it."""
    ALONE = "alone"
    """The document belongs to no aggregate: nothing waits behind it, and it can only be discarded."""
    DISCARDED = "discarded"
    """The event was discarded. It stays visible for a while."""


@dataclass(frozen=True)
class Discarding:
    """The time and the reason of a discarding."""

    at: datetime
    reason: str


@dataclass(frozen=True)
class ParkedEvent:
    """A parked event document. ``action`` and ``sequence`` are None if the document does not contain them."""

    id: str
    """The id in the parking lot: an event's own id is unique only within its aggregate."""
    event_id: str
    aggregate: AggregateKey | None
    action: str | None
    sequence: int | None
    reason: str
    parked_at: datetime
    state: ParkedState
    attempts: int
    """The number of refusals of the event by the broker, or by the relay before sending."""
    discarding: Discarding | None
    is_skip: bool
    """Whether it replaces a discarded event."""
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ParkedPage:
    """A page of parked events, and the token of the next page (None: this page is the last)."""

    items: Sequence[ParkedEvent]
    continuation_token: str | None


Change = Callable[[AggregateBlock], AggregateBlock]
"""A change that is applied to the newest block."""


PARTITION = "parked"
"""The logical partition of the whole parking lot."""

BLOCKED, FREE = "parkedAggregate", "freedAggregate"
"""The ``type`` of a parked aggregate's block, and of one that was parked recently."""

BLOCK_FIELDS = (
    "id", "aggregateType", "aggregateId", "blockedBy", "reason", "blockedSince", "attempts", "attemptedAt", "passing",
    "stands", "replay", "replayUntil", "accepted", "tail", "waiting",
)  # fmt: skip
"""All fields but the events' ids, which may be thousands, and the version: enough to show a block, not to store it."""

_MOST_IDS = 5_000
"""The most ids in a block, which keeps it far below an item's limit of 2 MB."""

_PLAIN_TYPE, _PLAIN_ID = re.compile(r"[A-Za-z0-9]+"), re.compile(r"[A-Za-z0-9._-]+")
"""Types and ids that may be part of an item's id; any other is hashed."""


def naming(aggregate: AggregateKey | None) -> Item:
    """Returns the fields with which a parked document, or a block, names its aggregate; None: it belongs to none."""
    return {
        "aggregateType": aggregate.type if aggregate else None,
        "aggregateId": aggregate.id if aggregate else None,
    }


def named(item: Mapping[str, Any]) -> AggregateKey | None:
    """Returns the aggregate that a document names."""
    kind = item["aggregateType"]
    return None if kind is None else AggregateKey(kind, item["aggregateId"])


def block_item(block: AggregateBlock, now: datetime, ttl: int) -> Item:
    """Returns the item to store for a block. Rule ``blocked-never-expires``: only a free one has a TTL.

    ``ttl``: how long a free block, and the ids in any block, are kept, in seconds: as long as events are.
    """
    refusal = block.refusal
    item = {
        "id": block_id(block.aggregate),
        "partitionKey": PARTITION,
        "type": BLOCKED if block.blocked else FREE,
        **naming(block.aggregate),
        "blockedBy": refusal.event_id if refusal else None,
        "reason": refusal.reason if refusal else None,
        "blockedSince": _text(block.blocked_since),
        "attempts": refusal.attempts if refusal else None,
        "attemptedAt": _text(refusal.at) if refusal else None,
        "passing": refusal.passing if refusal else None,
        "stands": block.stands,
        "replay": block.replay,
        "replayUntil": _text(block.replay_until),
        "accepted": block.accepted,
        "tail": block.tail,
        "waiting": block.waiting,
        "discarded": _not_expired(block.discarded, now, ttl),
        "passed": _not_expired(block.passed, now, ttl),
    }
    return item if block.blocked else item | {"ttl": ttl}


def block_of(item: Item) -> AggregateBlock:
    """Returns the block in an item that was read."""
    key = named(item)
    assert key is not None, "a block names its aggregate"
    return AggregateBlock(
        key,
        version=item.get("_etag", ""),
        blocked_since=_time(item["blockedSince"]),
        refusal=_refusal(item),
        stands=item["stands"],
        replay=item["replay"],
        replay_until=_time(item["replayUntil"]),
        accepted=item["accepted"],
        tail=item["tail"],
        waiting=item["waiting"],
        discarded=_times(item.get("discarded", {})),
        passed=_times(item.get("passed", {})),
    )


def _not_expired(ids: Mapping[str, datetime], now: datetime, ttl: int) -> dict[str, str]:
    since = now - timedelta(seconds=ttl)
    newest = sorted(ids.items(), key=lambda each: each[1])[-_MOST_IDS:]
    return {event_id: at.isoformat() for event_id, at in newest if at > since}


def block_id(aggregate: AggregateKey) -> str:
    """Returns the id of an aggregate's block."""
    if _PLAIN_TYPE.fullmatch(aggregate.type) and _PLAIN_ID.fullmatch(aggregate.id):
        return f"{aggregate.type}-{aggregate.id}"
    digest = hashlib.sha256(json.dumps([*aggregate]).encode()).hexdigest()[:32]
    return f"aggregate.{digest}"


def _refusal(item: Item) -> Refusal | None:
    at = _time(item["attemptedAt"])
    if at is None:
        return None
    return Refusal(item["blockedBy"], item["reason"], item["attempts"], at, item["passing"])


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _times(texts: Mapping[str, str]) -> dict[str, datetime]:
    return {event_id: datetime.fromisoformat(text) for event_id, text in texts.items()}


EVENT, DISCARDED = "parkedEvent", "discardedEvent"
EVENT_FIELDS = (
    "id", "type", "eventId", "aggregateType", "aggregateId", "action", "sequence", "reason", "parkedAt", "notice",
    "discardedAt", "discardReason",
)  # fmt: skip
"""All fields but the document: a hundred of them may have many megabytes."""

_BATCH, _BATCH_BYTES = 40, 900_000
"""The most events in one transaction, and the most bytes; a single event may have more."""


@dataclass(frozen=True)
class ParkedDocuments:
    """Writes and reads the items of parked events."""

    events: EventReader

    def event_item(self, event: FeedEvent, block: AggregateBlock, place: Place, *, at: datetime) -> Item:
        """Returns the item of an event that is parked ``at`` this time (UTC), behind the block."""
        return self._item(event, _reason(event, block), at) | {"position": _position(place)}

    def alone_item(self, poison: Poison, *, at: datetime) -> Item:
        """Returns the item of a document that belongs to no aggregate."""
        return self._item(poison, poison.reason, at)

    def _item(self, event: FeedEvent, reason: str, at: datetime) -> Item:
        return {
            "id": _digest(self.events.paths.raw(event.document), event.id),
            "partitionKey": PARTITION,
            "type": EVENT,
            "eventId": event.id,
            **naming(event.aggregate),
            "action": event.action if isinstance(event, OutboxEvent) else None,
            "sequence": event.sequence,
            "reason": reason,
            "parkedAt": at.isoformat(),
            "document": _kept(event.document, self.events.paths),
        }

    def skip_marker_item(self, skip: SkipMarker, discarded: Item) -> Item:
        """Returns the item of the skip marker that replaces an event's item."""
        paths = self.events.paths
        document = skip_marker_document(skip, partition_key=paths.raw(discarded["document"]), paths=paths)
        return {
            "id": _digest("notice", discarded["id"]),
            "partitionKey": PARTITION,
            "type": EVENT,
            "notice": True,
            "eventId": skip.id,
            **naming(skip.aggregate),
            "action": ACTION,
            "sequence": skip.sequence,
            "position": discarded["position"],
            "reason": f"stands in the place of event {skip.discarded_event_id}, which was discarded",
            "parkedAt": skip.created_at.isoformat(),
            "document": document,
        }

    def discarded_item(self, item: Item, reason: str, *, at: datetime, ttl: int) -> Item:
        """Returns the item of a discarded event, without its document; it expires after ``ttl`` seconds."""
        stored = {name: value for name, value in item.items() if not name.startswith("_")}
        return stored | {
            "type": DISCARDED,
            "document": place_of(item["document"], self.events.paths),
            "discardedAt": at.isoformat(),
            "discardReason": reason,
            "ttl": ttl,
        }

    def without_document(self, item: Item) -> Item:
        """Returns a parked event's item without the document, which the store does not take inside it."""
        reason = (
            f"{item['reason']} (the store does not take the document here: see the container of the feed)"
        )
        return item | {"document": place_of(item["document"], self.events.paths), "reason": reason}

    def has_document(self, item: Item) -> bool:
        """Whether the item has more of the document than its location."""
        return bool(set(item["document"]) - set(place_of(item["document"], self.events.paths)))

    def event(self, item: Item, block: AggregateBlock | None) -> ParkedEvent:
        """Returns the parked event in an item that was read; ``block``: its aggregate's, if it is known."""
        aggregate = named(item)
        refusal = block.refusal if block else None
        refused = refusal if refusal and refusal.event_id == item["eventId"] else None
        state = ParkedState.WAITING
        if item["type"] == DISCARDED:
            state = ParkedState.DISCARDED
        elif aggregate is None:
            state = ParkedState.ALONE
        elif block and block.in_the_way == item["eventId"]:
            state = ParkedState.IN_THE_WAY
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
            discarding=_discarding(item),
            is_skip=bool(item.get("notice")),
            document=item.get("document", {}),
        )

    def feed_event(self, parked: ParkedEvent) -> FeedEvent:
        """Returns the event as the feed delivered it, or the skip marker, to be sent by a replay."""
        event = self.events.event(parked.document)
        return event or Poison(parked.event_id, parked.aggregate, "the store did not take the document")


def _discarding(item: Mapping[str, Any]) -> Discarding | None:
    if item["type"] != DISCARDED:
        return None
    return Discarding(datetime.fromisoformat(item["discardedAt"]), item["discardReason"])


def _reason(event: FeedEvent, block: AggregateBlock) -> str:
    if isinstance(event, Poison):
        return event.reason
    if block.refusal is None:  # somebody edited the block
        return "waits until the aggregate is replayed"
    if block.refusal.event_id == event.id:
        return block.refusal.reason
    return f"waits behind event {block.refusal.event_id}"


def _position(place: Place) -> str:
    """Returns the place as a text that sorts as the place does."""
    after, unsequenced, (lsn, created_at, event_id) = place
    text = f"{after:020d}"
    return f"{text}-1-{lsn:020d}-{created_at}-{event_id}" if unsequenced else f"{text}-0"


def _digest(*parts: Any) -> str:
    """Hashes the parts: an event's id is unique only in its partition, and a broken document may have any id."""
    return hashlib.sha256(b"[%b]" % b", ".join(map(plain, parts))).hexdigest()[:32]


def _kept(document: Mapping[str, Any], paths: PartitionKeyPaths) -> Item:
    """Returns the document, if it can be stored in some form."""
    try:
        json.dumps(dict(document))
    except (ValueError, TypeError, RecursionError):
        return place_of(document, paths)
    return dict(document)


def chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yields the items in order, in parts that fit one transaction; a part of a single item may be larger."""
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


def place_of(document: Mapping[str, Any], paths: PartitionKeyPaths) -> Item:
    """Returns the location of a document that is not stored, as storable values: None for an invalid one."""
    item_id = document.get("id")
    kept = item_id if is_text(item_id) and len(item_id) <= LONGEST_KEY else None
    return {"id": kept, **paths.fields(paths.storable(document))}
