"""Markers as Cosmos items, and back. An aggregate has one marker, under an id that follows from its key."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.marker import Marker, Refusal

BLOCKED, FREE = "parkedAggregate", "freedAggregate"
"""The ``type`` of the marker of a parked aggregate, and of one that was parked lately."""

_MOST_IDS = 5_000
"""So that a marker stays far below the 2 MB that an item may have."""

_PLAIN_TYPE, _PLAIN_ID = re.compile(r"[A-Za-z0-9]+"), re.compile(r"[A-Za-z0-9._-]+")
"""Types and ids that may stand in an item's id; any other is hashed."""


def naming(aggregate: AggregateKey | None) -> Item:
    """The fields with which a parked document, or a marker, names its aggregate; None: it belongs to none."""
    return {
        "aggregateType": aggregate.type if aggregate else None,
        "aggregateId": aggregate.id if aggregate else None,
    }


def named(item: Mapping[str, Any]) -> AggregateKey | None:
    """The aggregate that a document names."""
    kind = item["aggregateType"]
    return None if kind is None else AggregateKey(kind, item["aggregateId"])


@dataclass(frozen=True)
class MarkerDocuments:
    """Writes and reads the items of markers."""

    ttl_seconds: int
    """How long a free marker, and the ids in any marker, are kept: as long as events are."""

    def item(self, marker: Marker, partition_key: str, now: datetime) -> Item:
        """The marker to be stored. Rule ``blocked-never-expires``: only a free one has a TTL."""
        refusal = marker.refusal
        item = {
            "id": marker_id(marker.aggregate),
            "partitionKey": partition_key,
            "type": BLOCKED if marker.blocked else FREE,
            **naming(marker.aggregate),
            "blockedBy": refusal.event_id if refusal else None,
            "reason": refusal.reason if refusal else None,
            "blockedSince": _text(marker.blocked_since),
            "attempts": refusal.attempts if refusal else None,
            "attemptedAt": _text(refusal.at) if refusal else None,
            "passing": refusal.passing if refusal else None,
            "stands": marker.stands,
            "replay": marker.replay,
            "replayUntil": _text(marker.replay_until),
            "accepted": marker.accepted,
            "tail": marker.tail,
            "waiting": marker.waiting,
            "discarded": self._not_expired(marker.discarded, now),
            "passed": self._not_expired(marker.passed, now),
        }
        return item if marker.blocked else item | {"ttl": self.ttl_seconds}

    def marker(self, item: Item) -> Marker:
        """The marker in an item that was read."""
        key = named(item)
        assert key is not None, "a marker names its aggregate"
        return Marker(
            key,
            version=item["_etag"],
            blocked_since=_time(item["blockedSince"]),
            refusal=_refusal(item),
            stands=item["stands"],
            replay=item["replay"],
            replay_until=_time(item["replayUntil"]),
            accepted=item["accepted"],
            tail=item["tail"],
            waiting=item["waiting"],
            discarded=_times(item["discarded"]),
            passed=_times(item["passed"]),
        )

    def _not_expired(self, ids: Mapping[str, datetime], now: datetime) -> dict[str, str]:
        since = now - timedelta(seconds=self.ttl_seconds)
        newest = sorted(ids.items(), key=lambda each: each[1])[-_MOST_IDS:]
        return {event_id: at.isoformat() for event_id, at in newest if at > since}


def marker_id(aggregate: AggregateKey) -> str:
    """The id of an aggregate's marker."""
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
