"""In-memory adapters. They pass the same contract suite as the real ones, so that unit tests may trust them.

What they cannot prove: atomicity under a crash, lost answers, limits of the real services, order of the change feed.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self
from uuid import UUID

from application.ports import (
    ETag,
    FeedEvent,
    Origin,
    OutboxEvent,
    Page,
    ParkedContact,
    ParkedEvent,
    ParkedPage,
    Poison,
    Receipt,
    Refusal,
    RequestRecord,
)
from domain.contact import Contact
from domain.errors import ChangeTooLarge, ContactNotFound, NotDelivered, PreconditionFailed
from domain.values import ContactState
from infra.documents import event_from_item, event_item
from tests.support.contacts import NOON

LARGEST_MESSAGE_BYTES = 256 * 1024


@dataclass
class FakeStore:
    """What all units of work of one store share."""

    contacts: dict[UUID, tuple[ContactState, ETag]] = field(default_factory=dict)
    events: list[OutboxEvent] = field(default_factory=list)
    records: dict[tuple[UUID, str], RequestRecord] = field(default_factory=dict)
    records_last: bool = True
    versions: "itertools.count[int]" = field(default_factory=itertools.count)

    def __call__(self, origin: Origin) -> "FakeUnitOfWork":
        return FakeUnitOfWork(self, origin)


class FakeUnitOfWork:
    def __init__(self, store: FakeStore, origin: Origin) -> None:
        self._store = store
        self._origin = origin
        self.tracked: list[tuple[Contact, ETag | None]] = []
        self.requests = FakeRecords(store)

    @property
    def contacts(self) -> "FakeUnitOfWork":
        return self

    def add(self, contact: Contact) -> None:
        self.tracked.append((contact, None))

    async def get(self, contact_id: UUID) -> tuple[Contact, ETag]:
        if contact_id not in self._store.contacts or self._store.contacts[contact_id][0].deleted:
            raise ContactNotFound(f"there is no contact {contact_id}")
        state, etag = self._store.contacts[contact_id]
        contact = Contact.load(state)
        self.tracked.append((contact, etag))
        return contact, etag

    async def page(self, size: int, continuation_token: str | None) -> Page:
        start = int(continuation_token or 0)
        alive = [state for state, _ in self._store.contacts.values() if not state.deleted]
        return Page(alive[start : start + size], str(start + size) if start + size < len(alive) else None)

    async def commit(self) -> Receipt:
        tracked, self.tracked = self.tracked, []
        records, self.requests.tracked = self.requests.tracked, []
        contact, etag = tracked[-1]
        changes = contact.changes()
        if changes is None:
            return Receipt(contact.state, etag)
        if len(changes.events) > 99:
            raise ChangeTooLarge("too many")
        if self._store.contacts.get(contact.id, (None, None))[1] != etag:
            raise PreconditionFailed("changed by another")
        new_etag = f'"{next(self._store.versions)}"'
        self._store.contacts[contact.id] = (changes.state, new_etag)
        for event in changes.events:
            out = event_from_item(event_item(event, self._origin, ttl=60))
            assert isinstance(out, OutboxEvent)
            self._store.events.append(out)
        for record in records:
            if self._store.records_last:
                self._store.records[contact.id, record.key_digest] = record
        return Receipt(changes.state, new_etag, len(changes.events))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracked = []


class FakeRecords:
    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.tracked: list[RequestRecord] = []

    def add(self, record: RequestRecord) -> None:
        self.tracked.append(record)

    async def get(self, contact_id: UUID, key_digest: str) -> RequestRecord | None:
        return self._store.records.get((contact_id, key_digest))


@dataclass
class FakePublisher:
    """Keeps what was sent, drops duplicates as the topic does, and fails as told."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    """(contact id, event id), in the order accepted."""
    fail_for: set[str] = field(default_factory=set)

    async def publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Refusal | None:
        if contact_id in self.fail_for:
            raise NotDelivered("the broker is away")
        for event in events:
            if len(json.dumps(dict(event.data))) > LARGEST_MESSAGE_BYTES:
                return Refusal(event, "too large")
            if (contact_id, event.id) not in self.sent:
                self.sent.append((contact_id, event.id))
        return None


@dataclass
class FakeParkingLot:
    """Parks in memory. ``versions`` make a release fail that did not see the newest park."""

    markers: dict[str, ParkedContact] = field(default_factory=dict)
    parked: dict[str, tuple[ParkedEvent, FeedEvent]] = field(default_factory=dict)
    discarded: dict[str, str] = field(default_factory=dict)
    versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def contacts(self) -> Mapping[str, ParkedContact]:
        return dict(self.markers)

    async def contact(self, contact_id: str) -> ParkedContact | None:
        return self.markers.get(contact_id)

    async def park(self, contact: ParkedContact, events: Sequence[FeedEvent]) -> None:
        self._check(contact)
        self.markers[contact.contact_id] = replace(contact, version=str(next(self.versions)))
        for event in events:
            self._keep(event, contact)

    async def park_alone(self, poison: Poison) -> None:
        self._keep(poison, None)

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        start = int(continuation_token or 0)
        found = [parked for parked, _ in self.parked.values()]
        return ParkedPage(
            found[start : start + size], str(start + size) if start + size < len(found) else None
        )

    async def get(self, parking_id: str) -> ParkedEvent | None:
        return self.parked[parking_id][0] if parking_id in self.parked else None

    async def waiting(self, contact_id: str, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        found = [pair for pair in self.parked.values() if pair[0].contact_id == contact_id]
        return sorted(found, key=lambda pair: pair[1].position)[:limit]

    async def remove(self, parked: Sequence[ParkedEvent]) -> None:
        for event in parked:
            self.parked.pop(event.id, None)

    async def move_block(self, contact: ParkedContact) -> None:
        self._check(contact)
        self.markers[contact.contact_id] = replace(contact, version=str(next(self.versions)))

    async def discard(self, parked: ParkedEvent, reason: str) -> None:
        self.parked.pop(parked.id, None)
        self.discarded[parked.id] = reason

    async def release(self, contact: ParkedContact) -> bool:
        if self.markers.get(contact.contact_id) != contact:
            return False
        del self.markers[contact.contact_id]
        return True

    def _check(self, contact: ParkedContact) -> None:
        newest = self.markers.get(contact.contact_id)
        if (newest.version if newest else "") != contact.version:
            raise PreconditionFailed("changed by another")

    def _keep(self, event: FeedEvent, contact: ParkedContact | None) -> None:
        valid = event if isinstance(event, OutboxEvent) else None
        reason = event.reason if isinstance(event, Poison) else contact.reason if contact else ""
        if contact and contact.blocked_by != event.id:
            reason = f"waits behind event {contact.blocked_by}"
        parking_id = f"p-{event.contact_id}-{event.id}"
        self.parked[parking_id] = (
            ParkedEvent(
                parking_id, event.id, event.contact_id, valid.action if valid else None,
                valid.sequence if valid else None, reason, NOON, event.document,
            ),
            event,
        )  # fmt: skip
