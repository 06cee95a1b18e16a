"""Converts lease documents; unknown fields, written by another processor, are preserved.

The schema is that of the .NET SDK (``DocumentServiceLeaseCore`` for a lease of one physical partition,
version 0; ``DocumentServiceLeaseCoreEpk`` for a lease of a part of the key space, version 1).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Self

INCREMENTAL_FEED = "Incremental Feed"
"""The ``Mode`` of a lease that reads the latest version of each item; also meant by a lease without ``Mode``."""

_SYSTEM_PROPERTIES = ("_rid", "_self", "_etag", "_attachments", "_ts")
_OUR_PROPERTIES = (
    "id",
    "version",
    "LeaseToken",
    "FeedRange",
    "Owner",
    "ContinuationToken",
    "properties",
    "timestamp",
    "Mode",
)
_MORE_THAN_MICROSECONDS = re.compile(r"(\.\d{6})\d+")


NEVER = datetime.min.replace(tzinfo=UTC)


class LeaseVersion(IntEnum):
    """The kind of range that ``LeaseToken`` names."""

    PARTITION_KEY_RANGE = 0
    """The id of a physical partition."""
    EPK_RANGE = 1
    """``min-max`` of effective partition keys; such leases are written after a merge of partitions."""


@dataclass(frozen=True)
class EpkRange:
    """Effective partition keys from ``min`` (inclusive) to ``max`` (exclusive), in upper-case hexadecimal."""

    min: str
    max: str

    def overlaps(self, other: "EpkRange") -> bool:
        return self.min < other.max and other.min < self.max

    def holds(self, key: str) -> bool:
        """Whether an effective partition key is in the range."""
        return self.min <= key < self.max

    def intersection(self, other: "EpkRange") -> "EpkRange":
        return EpkRange(max(self.min, other.min), min(self.max, other.max))


@dataclass(frozen=True)
class Lease:
    """A part of the feed, with its owner and checkpoint."""

    id: str
    token: str
    feed_range: EpkRange | None
    """``None`` only in leases of old .NET versions, which name only the partition."""
    owner: str | None = None
    continuation: str | None = None
    """An LSN in quotes, as in the service's ETag; ``None`` before the first checkpoint."""
    timestamp: datetime = NEVER
    """The time of the owner's last write, by the owner's clock."""
    version: LeaseVersion = LeaseVersion.PARTITION_KEY_RANGE
    mode: str = INCREMENTAL_FEED
    properties: Mapping[str, str] = field(default_factory=dict)
    etag: str | None = None
    stored_at: datetime | None = field(default=None, compare=False)
    """The time of the last write, by the store's clock, to the second; None: the lease was not read."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the document that this class does not know."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            id=document["id"],
            # The first generation of the processor called the token "PartitionId".
            token=document.get("LeaseToken") or document["PartitionId"],
            feed_range=_parse_range(document.get("FeedRange")),
            owner=document.get("Owner") or None,
            continuation=document.get("ContinuationToken") or None,
            timestamp=_parse_time(document),
            version=LeaseVersion(document.get("version", 0)),
            mode=document.get("Mode") or INCREMENTAL_FEED,
            properties=document.get("properties") or {},
            etag=document.get("_etag"),
            stored_at=datetime.fromtimestamp(document["_ts"], UTC) if "_ts" in document else None,
            unknown={
                name: value
                for name, value in document.items()
                if name not in _OUR_PROPERTIES and name not in _SYSTEM_PROPERTIES
            },
        )

    def to_document(self) -> dict[str, Any]:
        document = {
            **self.unknown,
            "id": self.id,
            "version": int(self.version),
            "LeaseToken": self.token,
            "Owner": self.owner,
            "ContinuationToken": self.continuation,
            "properties": dict(self.properties),
            "timestamp": self.timestamp.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "Mode": self.mode,
        }
        if self.feed_range is not None:
            document["FeedRange"] = {"Range": {"min": self.feed_range.min, "max": self.feed_range.max}}
        return document

    def owned_by(self, owner: str | None) -> "Lease":
        return replace(self, owner=owner)

    def at(self, continuation: str | None) -> "Lease":
        return replace(self, continuation=continuation)


def _parse_range(value: Any) -> EpkRange | None:
    if not value:
        return None
    bounds = value["Range"]
    return EpkRange(bounds["min"].upper(), bounds["max"].upper())


def _parse_time(document: Mapping[str, Any]) -> datetime:
    explicit = document.get("timestamp")
    if not explicit:
        return datetime.fromtimestamp(document.get("_ts", 0), UTC)
    # .NET writes seven digits after the point, Python reads six.
    parsed = datetime.fromisoformat(_MORE_THAN_MICROSECONDS.sub(r"\1", explicit))
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
