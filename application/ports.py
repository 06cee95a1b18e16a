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


@dataclass(frozen=True)
class OutboxEvent:
    """An event on its way out: what the relay needs to order and address it, and ``data``, which it only carries."""

    id: str
    contact_id: str
    action: str
    sequence: int
    created_at: datetime
    correlation_id: str | None = None
    traceparent: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)  # personal data: never in a log


@dataclass(frozen=True)
class Unsendable:
    """Why an event document can never be sent. ``reason`` carries no personal data."""

    event_id: str
    contact_id: str
    reason: str


class EventPublisher(Protocol):
    """Hands events to the message broker."""

    async def publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Sequence[Unsendable]:
        """Send one contact's events in the order given; returns those that the broker can never accept.

        On return the broker has accepted all the others. Sending an event again does no harm: the broker drops it.

        Raises:
            NotDelivered: not all were accepted, for a reason that passes; some may have been.
        """
