"""Each event is archived before the archive's place in the feed moves on; a page that comes again changes nothing.

A second reader of the feed writes each page's events to the archive, by the day on which they were stored, one blob a
day of a page. A blob is named by its content, and written only where there is none of that name: so the same page again
is the same blob, no late writer replaces what another one has written, and an erased blob is not filled again. A page
that comes again with other bounds makes another blob, in which events are once more: who reads the archive takes each
event's id once.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import NotDelivered
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Unread
from cosmos_outbox.outbox.originals import Originals


@dataclass(frozen=True)
class Blob:
    """Some events, as JSON, one a line."""

    name: str
    """``2026/05/04/<the first LSN>-<a digest of the content>.jsonl``"""
    body: bytes


class Archive(Protocol):
    """Where blobs are kept. Every call raises Unavailable when it was not answered, and Misconfigured."""

    async def put(self, blob: Blob) -> None:
        """Store a blob, unless one of its name is there."""

    def blobs(self) -> AsyncIterator[tuple[Blob, str]]:
        """All, each with its version."""

    async def replace(self, blob: Blob, version: str) -> None:
        """Put a blob's content in the place of that version. Raises PreconditionFailed: it has another one."""


@dataclass(frozen=True)
class Archiver:
    """Archives pages of the feed."""

    archive: Archive
    originals: Originals

    async def keep(self, events: Sequence[FeedEvent]) -> int:
        """Archive the events of a page as they were committed. Returns how many they are.

        Raises NotDelivered: read the page again. Raises as :class:`Archive` does.
        """
        verified = await self.originals.verify(events)
        for each in verified:
            if isinstance(each, Unread):
                raise NotDelivered(each.reason, each.why)
        for blob in blobs_of(verified):
            await self.archive.put(blob)
        self.originals.forget(events)
        return len(verified)

    async def erase(self, key: AggregateKey, kept: Collection[str]) -> int:
        """Empty the archived events of an aggregate, but for those of the kinds in ``kept``. Returns how many.

        Reads the whole archive. Cut off, it may be run again.
        """
        emptied = 0
        async for blob, version in self.archive.blobs():
            body, number = without(blob.body, key, kept)
            if number:
                await self.archive.replace(Blob(blob.name, body), version)
                emptied += number
        return emptied


def blobs_of(events: Sequence[FeedEvent]) -> list[Blob]:
    """The blobs of a page: one for each day on which its events were stored."""
    days: defaultdict[str, list[tuple[int, str, bytes]]] = defaultdict(list)
    for event in events:
        assert not isinstance(event, Unread), "it could not be read"
        stored = datetime.fromtimestamp(int(event.document.get("_ts", 0)), UTC)
        days[f"{stored:%Y/%m/%d}"].append((event.lsn, event.id, _line(event, stored)))
    blobs = []
    for day, lines in sorted(days.items()):
        lines.sort()
        body = b"".join(line for _, _, line in lines)
        blobs.append(Blob(f"{day}/{lines[0][0]:020d}-{hashlib.sha256(body).hexdigest()[:32]}.jsonl", body))
    return blobs


def without(body: bytes, key: AggregateKey, kept: Collection[str]) -> tuple[bytes, int]:
    """A blob's content with that aggregate's events emptied, and how many were."""
    number, lines = 0, []
    for text in body.splitlines(keepends=True):
        line = json.loads(text)
        is_of = (line["aggregateType"], line["aggregateId"]) == (key.type, key.id)
        if is_of and "document" in line and line["action"] not in kept:
            del line["document"]
            lines.append(_written({**line, "erased": True}))
            number += 1
        else:
            lines.append(text)
    return b"".join(lines), number


def _line(event: FeedEvent, stored: datetime) -> bytes:
    assert not isinstance(event, Unread), "it could not be read"
    valid = isinstance(event, OutboxEvent)
    return _written(
        {
            "id": event.id,
            "aggregateType": event.aggregate.type if event.aggregate else None,
            "aggregateId": event.aggregate.id if event.aggregate else None,
            "action": event.action if isinstance(event, OutboxEvent) else None,
            "sequence": event.sequence,
            "lsn": event.lsn,
            "storedAt": stored.isoformat(),
            **({} if valid else {"invalid": event.reason if not isinstance(event, OutboxEvent) else ""}),
            "document": {name: value for name, value in event.document.items() if not name.startswith("_")},
        }
    )


def _written(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n"
