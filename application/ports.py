"""What the use cases need from the outside. Adapters live in ``infra``; one contract suite runs over all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

from domain.contact import Contact
from domain.values import ContactState

ETag = str
"""An opaque, quoted version of a stored document, as HTTP's ``ETag`` has it."""

Clock = Callable[[], datetime]
"""Tells the time in UTC."""


def utc_now() -> datetime:
    """The one clock of the deployed service."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Versioned:
    """A stored contact and the version it was read at."""

    contact: ContactState
    etag: ETag


@dataclass(frozen=True)
class Receipt:
    """What a committed contact became. ``etag`` is None when others have changed the contact since the commit."""

    contact: ContactState
    etag: ETag | None
    events: int = 0


@dataclass(frozen=True)
class Page:
    """Some contacts, and where the next ones start (None: there are no more)."""

    items: Sequence[ContactState]
    continuation_token: str | None


class ContactRepository(Protocol):
    """The contacts of one unit of work. What it hands out is tracked: its changes are stored by the commit."""

    def add(self, contact: Contact) -> None:
        """Track a new contact."""

    async def get(self, contact_id: UUID) -> tuple[Contact, ETag]:
        """The contact and its version; tracked.

        Raises:
            ContactNotFound: there is none, or it was deleted.
            Throttled, Unavailable: the store could not answer.
        """

    async def page(self, size: int, continuation_token: str | None) -> Page:
        """At most ``size`` contacts that are not deleted, in no promised order; not tracked.

        Raises:
            InvalidRequest: the token was not made by this service for this list.
            Throttled, Unavailable: the store could not answer.
        """


@dataclass(frozen=True)
class RequestRecord:
    """A request that created a contact, kept so that its repetition gets the same answer."""

    key_digest: str
    """A digest of the caller's idempotency key."""
    fingerprint: str
    """A digest of what the caller asked for."""
    contact: ContactState
    """The contact as the first answer had it."""


class RequestRecords(Protocol):
    """The requests answered before, each beside the contact that it created."""

    def add(self, record: RequestRecord) -> None:
        """Store the record in the transaction of the commit."""

    async def get(self, contact_id: UUID, key_digest: str) -> RequestRecord | None:
        """The record of a request that created this contact, unless there is none or it has expired.

        Raises:
            Throttled, Unavailable: the store could not answer.
        """


class UnitOfWork(Protocol):
    """Stores what changed in one contact, with the events that the changes raise, together or not at all.

    One object serves one request. Whatever happens in its context, it tracks nothing afterwards.
    """

    @property
    def contacts(self) -> ContactRepository:
        """The contacts of this unit of work."""

    @property
    def requests(self) -> RequestRecords:
        """The records of requests."""

    async def commit(self) -> Receipt:
        """Store every tracked change and its events in one transaction.

        Raises:
            PreconditionFailed: the contact was changed or deleted by another since it was read; nothing is stored.
            ChangeTooLarge: the change does not fit one transaction; nothing is stored.
            Throttled: nothing is stored.
            Unavailable: nothing is stored; its kind OutcomeUnknown: that could not be found out.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class UnitOfWorkFactory(Protocol):
    """Opens a unit of work; the events it stores carry ``origin``."""

    def __call__(self, origin: "Origin") -> UnitOfWork: ...


@dataclass(frozen=True)
class Origin:
    """What caused a change, so that an event can be traced back to its request."""

    correlation_id: str
    traceparent: str | None = None


Position = tuple[int, int]
"""Where in the change feed an event is: LSN, then sequence. Later events of a contact have greater ones."""

Document = Mapping[str, Any]
"""An item of the store as it was read: personal data, never in a log."""


@dataclass(frozen=True)
class OutboxEvent:
    """An event on its way out: what the relay needs to order and address it, and the document that it came in."""

    id: str
    contact_id: str
    action: str
    sequence: int
    created_at: datetime
    correlation_id: str | None = None
    traceparent: str | None = None
    lsn: int = 0
    document: Document = field(default_factory=dict, repr=False)

    @property
    def position(self) -> Position:
        """Its place among the events of its contact."""
        return self.lsn, self.sequence

    @property
    def data(self) -> Mapping[str, Any]:
        """What subscribers get."""
        data: Mapping[str, Any] = self.document["data"]
        return data


@dataclass(frozen=True)
class Poison:
    """A document that says it is an event and is none. ``reason`` carries no personal data.

    ``contact_id`` is None when the document is in no contact's partition.
    """

    id: str
    contact_id: str | None
    reason: str
    lsn: int = 0
    document: Document = field(default_factory=dict, repr=False)

    @property
    def position(self) -> Position:
        """Before every event of its transaction: whether it was to come before them, nobody knows."""
        return self.lsn, 0


FeedEvent = OutboxEvent | Poison


@dataclass(frozen=True)
class Refusal:
    """The broker will never take this event as it is. ``reason`` carries no personal data."""

    event: OutboxEvent
    reason: str


class EventPublisher(Protocol):
    """Hands events to the message broker."""

    async def publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Refusal | None:
        """Send one contact's events in the order given, up to the first that the broker can never accept.

        On return the broker has accepted every event before the refused one, or all, and none after it. Sending an
        event again does no harm: the broker drops it.

        Raises:
            NotDelivered: not all were accepted, for a reason that passes; some may have been.
        """


@dataclass(frozen=True)
class ParkedContact:
    """A contact whose events are parked, from ``position`` on; all events before have been delivered."""

    contact_id: str
    blocked_by: str
    """The id of the event that cannot be sent."""
    reason: str
    position: Position
    version: ETag


@dataclass(frozen=True)
class ParkedEvent:
    """A parked event document. ``action`` and ``sequence`` are None when it is not clear enough to tell."""

    id: str
    """Its own in the parking lot: event ids are only unique within a contact."""
    event_id: str
    contact_id: str | None
    action: str | None
    sequence: int | None
    reason: str
    parked_at: datetime
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ParkedPage:
    """Some parked events, and where the next ones start."""

    items: Sequence[ParkedEvent]
    continuation_token: str | None


class ParkingLot(Protocol):
    """Keeps, durably, the events that cannot be sent and those that wait behind them.

    Every call raises Throttled, Unavailable or Misconfigured when the store could not answer.
    """

    async def contacts(self) -> Mapping[str, ParkedContact]:
        """The contacts that are parked, by id. Its cost grows with them alone."""

    async def contact(self, contact_id: str) -> ParkedContact | None:
        """One contact, if it is parked."""

    async def park(self, contact: ParkedContact, events: Sequence[FeedEvent]) -> None:
        """Park events of a contact. To park again what is parked already does no harm.

        A contact with an empty ``version`` was not parked before. Dying halfway leaves the first events parked.

        Raises:
            PreconditionFailed: the contact is not, or no longer, at ``contact.version``: look again.
        """

    async def park_alone(self, poison: Poison) -> None:
        """Park a document that belongs to no contact."""

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        """Parked events, oldest first. Raises InvalidRequest for a token that is not of this list."""

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """One parked event."""

    async def waiting(self, contact_id: str, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """A contact's first parked events, in order."""

    async def remove(self, parked: Sequence[ParkedEvent]) -> None:
        """Forget events that have been delivered."""

    async def move_block(self, contact: ParkedContact) -> None:
        """Say which event is in the way now. Raises PreconditionFailed as :meth:`park` does."""

    async def discard(self, parked: ParkedEvent, reason: str) -> None:
        """Give an event up for good; who asks later finds it with the reason, until it expires."""

    async def release(self, contact: ParkedContact) -> bool:
        """The contact is parked no longer; False when it was changed since it was read, for example by new events."""
