"""In-memory adapters. They pass the same contract suite as the real ones, so that unit tests may trust them.

What they cannot prove: atomicity under a crash, lost answers, limits of the real services, order of the change feed.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from uuid import UUID

from application.ports import ETag, Origin, OutboxEvent, Page, Receipt, RequestRecord, Unsendable
from domain.contact import Contact
from domain.errors import ChangeTooLarge, ContactNotFound, NotDelivered, PreconditionFailed
from domain.values import ContactState
from infra.documents import event_from_item, event_item

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

    async def publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Sequence[Unsendable]:
        if contact_id in self.fail_for:
            raise NotDelivered("the broker is away")
        refused = []
        for event in events:
            if len(json.dumps(dict(event.data))) > LARGEST_MESSAGE_BYTES:
                refused.append(Unsendable(event.id, contact_id, "too large"))
            elif (contact_id, event.id) not in self.sent:
                self.sent.append((contact_id, event.id))
        return refused
