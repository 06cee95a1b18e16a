"""Each event is archived before the archive's place in the feed moves on, and what was erased does not come back.

A second reader of the feed writes each page's events to the archive, by the day on which they were stored, one blob a
day of a page. A blob is named by its content and filled once: so the same page again is the same blob, no late writer
replaces what another one has written, and an erased blob is not filled again. A page that comes again with other bounds
makes another blob, in which events are once more: who reads the archive takes each event's id once.

A process may hold a page over an erasing, for as long as it is paused. Three rules keep what it holds out:

- ``claim-first``: a writer makes the blob, empty, before it looks at what was erased (``look-after-claim``), and fills
  the version that it claimed (``at-the-claim``).
- ``mark-first``: who erases writes down what, before the first blob is looked at.
- ``touch-claims``: who erases replaces each empty blob by an empty one, so that what was claimed before is void.

A claim that is made after the eraser's look finds the mark; an earlier one is void, or was filled, and then is emptied.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.archive_index import INDEX, ArchiveIndex, Indexed, digest_of, place_of
from cosmos_outbox.outbox.errors import ConcurrentChange, NotDelivered, PreconditionFailed
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Unread
from cosmos_outbox.outbox.originals import Originals

MARKS = "erased.jsonl"
"""The blob that holds what was erased: a digest for each aggregate and partition, and nothing that names them."""

_RACES = 5
_CLOCKS = timedelta(minutes=10)
"""So far apart may the clocks of the store and of who erases be."""


@dataclass(frozen=True)
class Blob:
    """Some events, as JSON, one a line."""

    name: str
    """``2026/05/04/<the first LSN>-<a digest of the content>.jsonl``"""
    body: bytes


@dataclass(frozen=True)
class Erasure:
    """Of an aggregate's events in a partition those up to an LSN, or of longer ago, but for some kinds."""

    aggregate: AggregateKey
    partition: str
    """Its name."""
    lsn: int
    at: datetime
    kept: Collection[str] = ()
    """The kinds whose events hold nothing personal."""

    def is_of(self, line: Mapping[str, Any]) -> bool:
        """Whether a line is one that it empties."""
        return (
            "document" in line
            and place_of(line) == (self.aggregate.type, self.aggregate.id, self.partition)
            and line["action"] not in self.kept
            # After a restore an account may count anew: so what is old goes whatever its LSN, as far as clocks agree.
            and (line["lsn"] <= self.lsn or datetime.fromisoformat(line["storedAt"]) < self.at - _CLOCKS)
        )


class Archive(Indexed, Protocol):
    """Where blobs are kept. Every call raises Unavailable when it was not answered, and Misconfigured."""

    async def claim(self, name: str) -> str | None:
        """The version of the empty blob of that name, which is made where there is none; None: it has content."""

    async def read(self, name: str, but: str = "") -> tuple[bytes, str] | None:
        """A blob's content and version; None: there is none, or it still has the version ``but``."""

    async def replace(self, blob: Blob, version: str) -> None:
        """Put a blob's content in the place of that version. Raises PreconditionFailed: it has another one."""

    def blobs(self) -> AsyncIterator[tuple[Blob, str]]:
        """All but entries of the index, each with its version: at least those that were there at the first step."""


@dataclass(frozen=True)
class Archiver:
    """Archives pages of the feed."""

    archive: Archive
    originals: Originals
    index: ArchiveIndex | None = None
    """None: nobody looks for the events of one aggregate."""
    _marks: "_Marks" = field(init=False, repr=False, default_factory=lambda: _Marks())  # noqa: PLW0108 - stands below

    async def keep(self, events: Sequence[FeedEvent]) -> int:
        """Archive the events of a page as they were committed. Returns how many they are.

        Raises NotDelivered, PreconditionFailed: hand over the page again. Raises as :class:`Archive` does.
        """
        verified = await self.originals.verify(events)
        for each in verified:
            if isinstance(each, Unread):
                raise NotDelivered(each.reason, each.why)
        for blob in blobs_of(verified):
            claimed = await self.archive.claim(blob.name)
            if claimed is not None:  # else it has the same content, or what an erasing has left of it
                await self._marks.read(self.archive)
                body = without(blob.body, [*self._marks.of(blob.body)])[0]
                await self.archive.replace(Blob(blob.name, body), claimed)
            if self.index is not None:
                await self.index.add(blob.name, blob.body)
        self.originals.forget(events)
        return len(verified)

    async def erase(self, erasure: Erasure) -> int:
        """Empty archived events, for good, whoever still holds them. Returns how many were there.

        Reads the whole archive. Cut off, it may be run again. Raises ConcurrentChange, and as :class:`Archive` does.
        """
        await self._marks.add(self.archive, erasure)
        emptied = 0
        async for blob, version in self.archive.blobs():
            if blob.name != MARKS and not blob.name.startswith(INDEX):
                emptied += await self._empty(blob, version, erasure)
        return emptied

    async def _empty(self, blob: Blob, version: str, erasure: Erasure) -> int:
        for _ in range(_RACES):
            body, number = without(blob.body, [erasure])
            if blob.body and not number:
                return 0
            try:
                await self.archive.replace(Blob(blob.name, body), version)
            except PreconditionFailed:
                found = await self.archive.read(blob.name)
                if found is None:
                    return 0
                blob, version = Blob(blob.name, found[0]), found[1]
                continue
            return number
        raise ConcurrentChange(f"{blob.name} was changed each time: run the same command again")


@dataclass
class _Marks:
    """What was erased, as far as it was read: by a digest of type, id and partition."""

    version: str = ""
    known: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    async def read(self, archive: Archive) -> None:
        """Read what is new. Raises as :class:`Archive` does."""
        found = await archive.read(MARKS, self.version)
        if found is not None:
            lines = [json.loads(line) for line in found[0].splitlines()]
            self.known, self.version = {line["of"]: line for line in lines}, found[1]

    async def add(self, archive: Archive, erasure: Erasure) -> None:
        """Write it down. Raises ConcurrentChange, and as :class:`Archive` does."""
        key = erasure.aggregate
        of = digest_of((key.type, key.id, erasure.partition))
        mark: dict[str, Any] = {
            "of": of, "lsn": erasure.lsn, "at": erasure.at.isoformat(), "kept": sorted(erasure.kept)
        }  # fmt: skip
        for _ in range(_RACES):
            await self.read(archive)
            if (before := self.known.get(of)) is not None:  # an earlier erasing may come to this point later
                mark |= {name: max(mark[name], before[name]) for name in ("lsn", "at")}
            if await self._written(archive, {**self.known, of: mark}):
                return
        raise ConcurrentChange(
            "others wrote down what they erase in the archive each time: run the same command again"
        )

    async def _written(self, archive: Archive, marks: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether nobody else has written since they were read."""
        version = self.version or await archive.claim(MARKS)
        if version is None:
            return False
        try:
            await archive.replace(Blob(MARKS, b"".join(map(_written, marks.values()))), version)
        except PreconditionFailed:
            return False
        return True

    def of(self, body: bytes) -> list[Erasure]:
        """What was erased of the aggregates of these lines."""
        if not self.known:
            return []
        found = []
        for place in {place_of(json.loads(line)) for line in body.splitlines()}:
            mark = self.known.get(digest_of(place))
            if mark is not None:
                key = AggregateKey(place[0] or "", place[1] or "")
                at = datetime.fromisoformat(mark["at"])
                found.append(Erasure(key, place[2], mark["lsn"], at, mark["kept"]))
        return found


def blobs_of(events: Sequence[FeedEvent]) -> list[Blob]:
    """The blobs of a page: one for each day on which its events were stored."""
    days: defaultdict[str, list[tuple[int, str, bytes]]] = defaultdict(list)
    for event in events:
        assert not isinstance(event, Unread), "it could not be read"
        stored = datetime.fromtimestamp(int(event.document["_ts"]), UTC)
        days[f"{stored:%Y/%m/%d}"].append((event.lsn, event.id, _line(event, stored)))
    blobs = []
    for day, lines in sorted(days.items()):
        lines.sort()
        body = b"".join(line for _, _, line in lines)
        blobs.append(Blob(f"{day}/{lines[0][0]:020d}-{hashlib.sha256(body).hexdigest()[:32]}.jsonl", body))
    return blobs


def without(body: bytes, erasures: Sequence[Erasure]) -> tuple[bytes, int]:
    """A blob's content with the events emptied that were erased, and how many were."""
    number, lines = 0, []
    for text in body.splitlines(keepends=True):
        line = json.loads(text)
        if any(each.is_of(line) for each in erasures):
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
            "partition": event.partition,
            "sequence": event.sequence,
            "lsn": event.lsn,
            "storedAt": stored.isoformat(),
            **({} if valid else {"invalid": event.reason if not isinstance(event, OutboxEvent) else ""}),
            "document": {name: value for name, value in event.document.items() if not name.startswith("_")},
        }
    )


def _written(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n"
