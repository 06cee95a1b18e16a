"""Markers as Cosmos items, and back. A version that was installed before can read what is stored, and the other way.

The version before knew only markers of parked aggregates, without counts. It finds those of this version by their old
type and fields; a marker of a free aggregate has another type, which it does not look for.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.cosmos.documents import Item
from outbox.aggregate import AggregateKey
from outbox.marker import Marker, Refusal

BLOCKED, FREE = "parkedAggregate", "freedAggregate"
_OLD_POSITION = f"{0:020d}-{0:020d}"
"""Before all events: the version before parks all of them."""

_MOST_IDS = 5_000
"""So that a marker stays far below the 2 MB that an item may have."""

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
class Owners:
    """How parked documents and markers name their aggregate."""

    stored_names: StoredNames | None = None
    """The old names of the one type that has them."""

    def field(self, aggregate: AggregateKey) -> str:
        """The field with the aggregate's id, in every parked document of this aggregate."""
        names = self.old(aggregate)
        return names.owner if names else "aggregateId"

    def old(self, aggregate: AggregateKey | None) -> StoredNames | None:
        """The old names, when this aggregate's type has them."""
        names = self.stored_names
        return names if names and aggregate and aggregate.type == names.aggregate_type else None

    def fields(self, aggregate: AggregateKey | None) -> Item:
        """The fields that name a document's aggregate, in all names that its readers know."""
        fields: Item = {
            "aggregateType": aggregate.type if aggregate else None,
            "aggregateId": aggregate.id if aggregate else None,
        }
        names = self.old(aggregate) if aggregate else self.stored_names
        if names:
            fields[names.owner] = fields["aggregateId"]
        return fields

    def key(self, item: Mapping[str, Any]) -> AggregateKey | None:
        """The aggregate that a document names."""
        if item.get("aggregateType") is not None:
            return AggregateKey(item["aggregateType"], item["aggregateId"])
        if self.stored_names and item.get(self.stored_names.owner) is not None:
            return AggregateKey(self.stored_names.aggregate_type, item[self.stored_names.owner])
        return None


@dataclass(frozen=True)
class MarkerDocuments:
    """Writes and reads the items of markers."""

    owners: Owners
    ttl_seconds: int
    """How long a free marker, and the ids in any marker, are kept: as long as events are."""

    @property
    def blocked_types(self) -> list[str]:
        """The ``type`` of every marker of a parked aggregate."""
        names = self.owners.stored_names
        return [BLOCKED, *([names.marker] if names else [])]

    @property
    def types(self) -> list[str]:
        """The ``type`` of every marker."""
        return [*self.blocked_types, FREE]

    def item(self, marker: Marker, partition_key: str, now: datetime) -> Item:
        """The marker to be stored. Rule ``blocked-never-expires``: only a free one has a TTL."""
        names, refusal = self.owners.old(marker.aggregate), marker.refusal
        item = {
            "id": marker_id(marker.aggregate),
            "partitionKey": partition_key,
            "type": (names.marker if names else BLOCKED) if marker.blocked else FREE,
            **self.owners.fields(marker.aggregate),
            "blockedBy": refusal.event_id if refusal else "",
            "reason": refusal.reason if refusal else "",
            "position": _OLD_POSITION,
            "blockedSince": _text(marker.blocked_since),
            "attempts": refusal.attempts if refusal else 0,
            "attemptedAt": _text(refusal.at) if refusal else None,
            "stands": marker.stands,
            "replay": marker.replay,
            "replayUntil": _text(marker.replay_until),
            "accepted": marker.accepted,
            "tail": marker.tail,
            "waiting": marker.waiting,
            "discarded": self._not_expired(marker.discarded, now),
            "passed": self._not_expired(marker.passed, now),
            "erased": marker.erased,
        }
        return item if marker.blocked else item | {"ttl": self.ttl_seconds}

    def marker(self, item: Item) -> Marker:
        """The marker in an item that was read."""
        key = self.owners.key(item)
        assert key is not None, "a marker names its aggregate"
        if (
            "blockedSince" not in item
        ):  # of the version before, which may have discarded the event that it names
            return Marker(
                key,
                version=item["_etag"],
                blocked_since=datetime.fromtimestamp(item["_ts"], UTC),
                refusal=Refusal(
                    item["blockedBy"], item["reason"], 0, datetime.fromtimestamp(item["_ts"], UTC)
                ),
                waiting=None,
            )
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
            erased=item["erased"],
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
    return None if at is None else Refusal(item["blockedBy"], item["reason"], item["attempts"], at)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _times(texts: Mapping[str, str]) -> dict[str, datetime]:
    return {event_id: datetime.fromisoformat(text) for event_id, text in texts.items()}
