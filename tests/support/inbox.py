"""In-memory adapters of the inbox's ports, with the failures of real ones: old reads, lost answers, death at any call.

They cannot prove atomicity under a crash or the limits of a real store; the contract suite runs over the real ones.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

from cosmos_outbox.inbox.entry import After, Entry, Found, Stamp, VersionedEntry, WalkPage
from cosmos_outbox.inbox.errors import EntryChanged, NotSetAside, RecordChanged, Unreadable
from cosmos_outbox.inbox.message import SKIP_MARKER, Delivery, Event
from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")
T = TypeVar("T")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Faults:
    """Raises an error at chosen calls, counted over all ports that share it, before or after the call's effect."""

    at: Mapping[int, tuple[type[BaseException], bool]] = field(default_factory=dict)
    calls: int = 0

    def run(self, effect: Callable[[], Any]) -> Any:
        number, self.calls = self.calls, self.calls + 1
        error, after = self.at.get(number, (None, False))
        if error is not None and not after:
            raise error("on purpose")
        result = effect()
        if error is not None:
            raise error("on purpose")
        return result


def paged(items: Sequence[tuple[AggregateKey, T]], position: str | None, size: int) -> WalkPage[T]:
    first = int(position or 0)
    return WalkPage(items[first : first + size], str(first + size) if first + size < len(items) else None)


@dataclass
class FakeEntries(Generic[S]):
    """Every version of every entry; ``lag``: how many versions a read that is not consistent is behind."""

    faults: Faults = field(default_factory=Faults)
    lag: int = 0
    written: dict[AggregateKey, list[Entry[S]]] = field(default_factory=dict)
    stamps: dict[AggregateKey, Stamp] = field(default_factory=dict)
    marks: dict[AggregateKey, datetime | None] = field(default_factory=dict)
    saved: tuple[Mapping[str, Any], str] | None = None
    reads: int = 0
    consistent_reads: int = 0
    page_size: int = 2

    def of(self, key: AggregateKey) -> Entry[S] | None:
        return self.written[key][-1] if key in self.written else None

    async def read(self, key: AggregateKey) -> VersionedEntry[S] | None:
        self.reads += 1
        found: VersionedEntry[S] | None = self.faults.run(lambda: self._at(key, self.lag))
        return found

    async def newest(self, key: AggregateKey) -> VersionedEntry[S] | None:
        self.consistent_reads += 1
        found: VersionedEntry[S] | None = self.faults.run(lambda: self._at(key, 0))
        return found

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> str:
        def write() -> str:
            versions = self.written.get(key, [])
            if (str(len(versions)) if versions else None) != over:
                raise EntryChanged("another version")
            self.written[key] = [*versions, entry]
            self.stamps[key] = stamp
            self.marks.pop(key, None)
            return str(len(self.written[key]))

        version: str = self.faults.run(write)
        return version

    async def remove(self, key: AggregateKey, *, over: str) -> None:
        def delete() -> None:
            if str(len(self.written.get(key, []))) != over:
                raise EntryChanged("another version")
            del self.written[key]

        self.faults.run(delete)

    async def page(self, position: str | None) -> WalkPage[VersionedEntry[S]]:
        found = [(key, self._at(key, 0)) for key in self.written]
        return paged(
            [(key, read) for key, read in found if read and not read.entry.deleted], position, self.page_size
        )

    async def mark(self, key: AggregateKey, version: str, blocked_since: datetime | None) -> None:
        if str(len(self.written.get(key, []))) != version:
            raise EntryChanged("another version")
        self.written[key].append(self.written[key][-1])
        self.marks[key] = blocked_since

    async def progress(self) -> tuple[Mapping[str, Any], str] | None:
        return self.saved

    async def save_progress(self, document: Mapping[str, Any], *, over: str | None) -> str:
        def write() -> str:
            if (self.saved and self.saved[1]) != over:
                raise EntryChanged("another version")
            version = str(int(over or 0) + 1)
            self.saved = json.loads(json.dumps(document)), version
            return version

        saved: str = self.faults.run(write)
        return saved

    def _at(self, key: AggregateKey, lag: int) -> VersionedEntry[S] | None:
        versions = self.written.get(key, [])
        seen = len(versions) - lag
        return VersionedEntry(versions[seen - 1], str(seen), self.marks.get(key)) if seen > 0 else None


@dataclass
class FakeSource(Generic[S]):
    """Every version of every aggregate; ``lag`` as of :class:`FakeEntries`."""

    faults: Faults = field(default_factory=Faults)
    lag: int = 0
    changes: dict[AggregateKey, list[Found[S] | None]] = field(default_factory=dict)
    reads: int = 0
    consistent_reads: int = 0
    listed: int = 0
    page_size: int = 2

    def change(self, key: AggregateKey, found: Found[S] | None) -> None:
        """``found`` None: the aggregate is gone."""
        self.changes.setdefault(key, []).append(found)

    async def read(self, key: AggregateKey) -> Found[S] | None:
        self.reads += 1
        found: Found[S] | None = self.faults.run(lambda: self._at(key, self.lag))
        return found

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        self.consistent_reads += 1
        found: Found[S] | None = self.faults.run(lambda: self._at(key, 0))
        return found

    async def page(self, since: datetime | None, position: str | None) -> WalkPage[Callable[[], Found[S]]]:
        found = [(key, self._at(key, self.lag)) for key in self.changes]
        listed: list[tuple[AggregateKey, Callable[[], Found[S]]]] = [
            (key, partial(_given, each))
            for key, each in found
            if each and (not since or not each.changed_at or each.changed_at >= since)
        ]
        page = paged(listed, position, self.page_size)
        self.listed += len(page.items)
        return page

    def _at(self, key: AggregateKey, lag: int) -> Found[S] | None:
        changes = self.changes.get(key, [])
        return changes[len(changes) - lag - 1] if len(changes) > lag else None


def _given(found: Found[S]) -> Found[S]:
    return found


KEY = AggregateKey("thing", "7")


def event(
    sequence: int | None, *, action: str = "Changed", key: AggregateKey = KEY, event_id: str = ""
) -> Event:
    """An event that adds its sequence to the state."""
    event_id = event_id or f"{key.id}/{sequence}/{action}"
    return Event(event_id, key, action, sequence, NOON, {"adds": sequence}, schema_version=2)


def skip_marker(sequence: int) -> Event:
    return event(sequence, action=SKIP_MARKER)


def project(state: tuple[int, ...], received: Event) -> After[tuple[int, ...]] | None:
    """Knows three actions. Broken raises, as a bug does."""
    match received.action:
        case "Changed":
            return After((*state, int(received.data["adds"])))
        case "Deleted":
            return After(None)
        case "Broken":
            raise ZeroDivisionError("a bug in the projection")
    return None


class FakeSetAside:
    """Records in memory."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.records: dict[str, Record] = {}
        self.faults = faults or Faults()
        self._writes = 0

    def states(self) -> dict[str, RecordState]:
        return {record.event_id or record.message_id: record.state for record in self.records.values()}

    async def add(self, record: Record) -> None:
        def create() -> None:
            self.records.setdefault(record.id, replace(record, version="0"))

        self.faults.run(create)

    async def waits(self, aggregate: AggregateKey) -> bool:
        return [each async for each in self.waiting(aggregate)] != []

    async def waiting(self, aggregate: AggregateKey | None = None) -> AsyncIterator[Record]:
        for record in [*self.records.values()]:
            if record.state is RecordState.WAITING and aggregate in (None, record.aggregate):
                yield replace(record, delivery=None)

    async def older(self, than: datetime) -> AsyncIterator[Record]:
        for record in [*self.records.values()]:
            if record.state.is_open and record.set_aside_at < than:
                yield replace(record, delivery=None)

    async def page(self, size: int, continuation_token: str | None) -> RecordPage:
        found = [replace(each, delivery=None) for each in self.records.values() if each.state.is_open]
        first = int(continuation_token or 0)
        more = str(first + size) if first + size < len(found) else None
        return RecordPage(found[first : first + size], more)

    async def count(self, state: RecordState) -> int:
        return [record.state for record in self.records.values()].count(state)

    async def get(self, record_id: str) -> Record:
        record = self.records.get(record_id)
        if record is None:
            raise NotSetAside("no record has this id")
        return record

    async def change(self, record: Record, state: RecordState, reason: str, *, attempts: int) -> None:
        def write() -> None:
            if self.records[record.id].version != record.version:
                raise RecordChanged("read it again")
            self._writes += 1
            delivery = record.delivery if state.is_open else None
            del self.records[record.id]  # the last tried come last
            self.records[record.id] = replace(
                record,
                state=state,
                reason=reason,
                attempts=attempts,
                delivery=delivery,
                version=str(self._writes),
            )

        self.faults.run(write)


def delivery(received: Event | None, number: int = 1, *, message_id: str = "") -> Delivery:
    """A message of the event; None: a message that is no event."""
    if received is None:
        return Delivery("s", message_id or "junk", number, b"", {})
    _EVENTS[received.id] = received
    return Delivery("s", message_id or received.id, number, received.id.encode(), {})


_EVENTS: dict[str, Event] = {}


def read(received: Delivery) -> Event | None:
    """The event of :func:`delivery`."""
    if not received.body:
        raise Unreadable("the message is no event")
    return _EVENTS[received.body.decode()]
