"""A subscriber's store in memory: JSON documents by their ids, each written over the version that was read."""

import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.effect import EffectRecord
from cosmos_outbox.inbox.entry import Entry, Stamp, VersionedEntry, WalkPage
from cosmos_outbox.inbox.errors import EntryChanged, NotSetAside, RecordChanged
from cosmos_outbox.inbox.form import Condition, EntryForm
from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState
from cosmos_outbox.inbox.stored import entry_document, entry_of, record_document, record_of, text_or_none
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation
from cosmos_outbox.lists.listing import EntryListing, Sorted
from cosmos_outbox.lists.token_key import TokenKey, new_key

S = TypeVar("S", bound=BaseModel)
Stored = tuple[dict[str, Any], str]


@dataclass
class Table:
    """Documents by their ids, in the order of their last writes."""

    clock: Callable[[], datetime]
    _rows: dict[str, tuple[str, str, datetime | None]] = field(default_factory=dict)
    _versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def get(self, document_id: str) -> Stored | None:
        """A copy of a document, and its version."""
        document, version, expires = self._rows.get(document_id, ("", "", None))
        if not document or (expires is not None and expires < self.clock()):
            return None
        return json.loads(document), version

    def put(
        self, document_id: str, document: Mapping[str, Any], over: str | None, seconds: int | None = None
    ) -> str | None:
        """Write it over that version; with its new one, or None: it was another one."""
        found = self.get(document_id)
        if (found and found[1]) != over:
            return None
        version = str(next(self._versions))
        expires = None if seconds is None else self.clock() + timedelta(seconds=seconds)
        self._rows.pop(document_id, None)
        self._rows[document_id] = json.dumps(document), version, expires
        return version

    def remove(self, document_id: str) -> None:
        """Remove a document."""
        del self._rows[document_id]

    def all(self) -> Iterator[Stored]:
        """A copy of each."""
        yield from (found for each in [*self._rows] if (found := self.get(each)))


@dataclass(frozen=True)
class MemoryEntries(Generic[S]):
    """See :class:`cosmos_outbox.inbox.ports.Entries`."""

    table: Table
    walk: Table
    form: EntryForm[S]
    deleted_ttl_seconds: int | None

    async def read(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """The entry."""
        found = self.table.get(key.id)
        return None if found is None else entry_of(self.form, *found)

    async def newest(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """The same."""
        return await self.read(key)

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> str:
        """Write an entry, and return its version. Raises EntryChanged."""
        seconds = self.deleted_ttl_seconds if entry.deleted else None
        return _changed(self.table.put(key.id, entry_document(self.form, key, entry, stamp), over, seconds))

    async def remove(self, key: AggregateKey, *, over: str) -> None:
        """Remove an entry. Raises EntryChanged."""
        found = self.table.get(key.id)
        _changed(found[1] if found and found[1] == over else None)
        self.table.remove(key.id)

    async def page(self, position: str | None) -> WalkPage[VersionedEntry[S]]:
        """All entries that are not deleted."""
        return WalkPage(
            [
                (
                    AggregateKey(document["aggregateType"], document["id"]),
                    entry_of(self.form, document, version),
                )
                for document, version in self.table.all()
                if not document["deleted"]
            ],
            None,
        )

    async def mark(self, key: AggregateKey, version: str, blocked_since: datetime | None) -> None:
        """Note in an entry since when it is blocked. Raises EntryChanged."""
        document, _ = self.table.get(key.id) or ({}, "")
        _changed(self.table.put(key.id, {**document, "blockedSince": text_or_none(blocked_since)}, version))

    async def progress(self) -> Stored | None:
        """How far the walk is."""
        return self.walk.get("walk")

    async def save_progress(self, document: Mapping[str, Any], *, over: str | None) -> str:
        """Write how far the walk is. Raises EntryChanged."""
        return _changed(self.walk.put("walk", document, over))

    async def first(
        self, conditions: Sequence[Sequence[Condition]], by: Sorted, most: int, after: Sequence[str] | None
    ) -> Sequence[Mapping[str, Any]]:
        """The first entries. See :class:`cosmos_outbox.lists.listing.Items`."""

        def place(document: Mapping[str, Any]) -> tuple[str, str]:
            return document["search"][by.text], document["id"]

        found = [
            document
            for document, _ in self.table.all()
            if by.text in document["search"] and _meets(conditions, document)
        ]
        found.sort(key=place, reverse=by.down)
        if after is not None:
            last = after[0], after[1]
            found = [each for each in found if (place(each) < last if by.down else place(each) > last)]
        return found[:most]


@dataclass(frozen=True)
class MemorySetAside:
    """See :class:`cosmos_outbox.inbox.set_aside.SetAside`."""

    table: Table
    subscription: str
    closed_ttl_seconds: int

    async def add(self, record: Record) -> None:
        """Create a record, unless there is one of its id."""
        self.table.put(record.id, record_document(record, self.subscription), None)

    async def waits(self, aggregate: AggregateKey) -> bool:
        """Whether a record of the aggregate waits."""
        return [each async for each in self.waiting(aggregate)] != []

    async def waiting(self, aggregate: AggregateKey | None = None) -> AsyncIterator[Record]:
        """The records that wait; the last that was written comes last."""
        for each in self._all():
            if each.state is RecordState.WAITING and aggregate in (None, each.aggregate):
                yield each

    async def older(self, than: datetime) -> AsyncIterator[Record]:
        """The open records from before then."""
        for each in self._all():
            if each.state.is_open and each.set_aside_at < than:
                yield each

    async def page(self, size: int, continuation_token: str | None) -> RecordPage:
        """A page of open records. Raises UnknownContinuation."""
        first = int(continuation.unseal(self.subscription, continuation_token)) if continuation_token else 0
        found = sorted(
            (each for each in self._all() if each.state.is_open), key=lambda each: each.set_aside_at
        )
        more = continuation.seal(self.subscription, str(first + size)) if first + size < len(found) else None
        return RecordPage(found[first : first + size], more)

    async def count(self, state: RecordState) -> int:
        """How many records are in this state."""
        return [each.state for each in self._all()].count(state)

    async def get(self, record_id: str) -> Record:
        """One record, with what is left of its message. Raises NotSetAside."""
        found = self.table.get(record_id)
        if found is None:
            raise NotSetAside("no record has this id: it was closed long ago, or there never was one")
        return record_of(*found)

    async def change(self, record: Record, state: RecordState, reason: str, *, attempts: int) -> None:
        """Write what became of a record. Raises RecordChanged."""
        delivery = (await self.get(record.id)).delivery
        changed = replace(record, state=state, reason=reason, attempts=attempts, delivery=delivery)
        seconds = None if state.is_open else self.closed_ttl_seconds
        if (
            self.table.put(record.id, record_document(changed, self.subscription), record.version, seconds)
            is None
        ):
            raise RecordChanged("somebody else changed the record: read it again")

    def _all(self) -> Iterator[Record]:
        for document, version in self.table.all():
            yield replace(record_of(document, version), delivery=None)


@dataclass(frozen=True)
class MemoryEffects:
    """See :class:`cosmos_outbox.inbox.effect.EffectRecords`."""

    table: Table
    ttl_seconds: int
    records: dict[str, EffectRecord] = field(default_factory=dict)

    async def find(self, event_id: str) -> EffectRecord | None:
        """The newest record."""
        found = self.table.get(event_id)
        return None if found is None else replace(self.records[event_id], version=found[1])

    async def write(self, record: EffectRecord) -> EffectRecord:
        """Create it, or replace it at its version. Raises RecordChanged."""
        version = self.table.put(record.event_id, {"state": record.state}, record.version, self.ttl_seconds)
        if version is None:
            raise RecordChanged("the record was changed: read it again")
        self.records[record.event_id] = record
        return replace(record, version=version)


@dataclass(frozen=True)
class MemoryStore:
    """See :class:`cosmos_outbox.wiring.subscribing.Store`."""

    clock: Callable[[], datetime]
    _tables: dict[str, Table] = field(default_factory=dict)
    _effects: dict[str, dict[str, EffectRecord]] = field(default_factory=dict)
    _key: str = field(default_factory=new_key, repr=False)

    def entries(self, name: str, form: EntryForm[S], deleted_ttl_seconds: int | None) -> MemoryEntries[S]:
        """Of one read model."""
        return MemoryEntries(
            self._table(f"entries/{name}"), self._table(f"walk/{name}"), form, deleted_ttl_seconds
        )

    def listing(self, name: str, form: EntryForm[S]) -> EntryListing[S]:
        """Of one read model."""

        async def key() -> str:
            return self._key

        return EntryListing(self.entries(name, form, None), form, name, TokenKey(key))

    def set_aside(self, subscription: str, closed_ttl_seconds: int) -> MemorySetAside:
        """Of one subscription."""
        return MemorySetAside(self._table(f"records/{subscription}"), subscription, closed_ttl_seconds)

    def effects(self, name: str, subscription: str, ttl_seconds: int) -> MemoryEffects:
        """Of one subscriber with effects."""
        table, records = self._table(f"effects/{subscription}"), self._effects.setdefault(subscription, {})
        return MemoryEffects(table, ttl_seconds, records)

    async def check(self) -> None:
        """It is always there."""

    def _table(self, name: str) -> Table:
        return self._tables.setdefault(name, Table(self.clock))


@dataclass(frozen=True)
class StoreInMemory:
    """See :class:`cosmos_outbox.wiring.subscribing.StoreOf`."""

    clock: Callable[[], datetime]

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> MemoryStore:
        """A store of its own."""
        return MemoryStore(self.clock)


def _changed(version: str | None) -> str:
    if version is None:
        raise EntryChanged("another writer changed it: read it again")
    return version


def _meets(conditions: Sequence[Sequence[Condition]], document: Mapping[str, Any]) -> bool:
    return all(any(_holds(each, document) for each in group) for group in conditions)


def _holds(condition: Condition, document: Mapping[str, Any]) -> bool:
    text = document["search"].get(condition.field)
    if text is None:
        return False
    return bool(text.startswith(condition.text) if condition.beginning else text == condition.text)
