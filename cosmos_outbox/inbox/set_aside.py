"""Defines the record of a message that cannot be applied; it is created only once, so a redelivery reopens none.

A record is *waiting* (it is retried) or *refused* (it never can be applied); it is closed as *applied*, *discarded*
or *overdue*. A closed record no longer has the message's body, which holds personal data, and expires.
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from cosmos_outbox.inbox.message import Delivery, Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass


class RecordState(StrEnum):
    """The state of a record, open or closed."""

    WAITING = "waiting"
    REFUSED = "refused"
    APPLIED = "applied"
    DISCARDED = "discarded"
    OVERDUE = "overdue"

    @property
    def is_open(self) -> bool:
        """Whether the timer or an operator still has to handle the record."""
        return self in (RecordState.WAITING, RecordState.REFUSED)


Receive = Callable[[Delivery], Awaitable[None]]
"""Handles a message. Raises StoreUnavailable, after a wait: the message returns to the broker."""

Keep = Callable[[Delivery, str], Awaitable[None]]
"""Stores the record of a dead letter, with the reason why it became one."""


@dataclass(frozen=True)
class Collected:
    """The result of collecting dead letters once."""

    messages: int
    emptied: bool
    """Whether the queue was found empty at the end; False: it may hold more."""


@dataclass(frozen=True)
class Record:
    """A message that was set aside. ``delivery`` None: the record is closed, or the body was too large to keep."""

    id: str
    state: RecordState
    reason: str
    """The reason, without personal data; for a discarded record the operator's text."""
    set_aside_at: datetime
    message_id: str
    enqueued_number: int
    event_id: str | None
    aggregate: AggregateKey | None
    action: str | None
    sequence: int | None
    attempts: int = 0
    """The number of retries since it was set aside."""
    delivery: Delivery | None = None
    version: str | None = None

    @classmethod
    def of(
        cls, delivery: Delivery, event: Event | None, state: RecordState, reason: str, at: datetime
    ) -> "Record":
        """Returns a new record; ``event`` None: the message is no event."""
        return cls(
            id=delivery.record_id,
            state=state,
            reason=reason,
            set_aside_at=at,
            message_id=delivery.message_id,
            enqueued_number=delivery.enqueued_number,
            event_id=event.id if event else None,
            aggregate=event.aggregate if event else None,
            action=event.action if event else None,
            sequence=event.sequence if event else None,
            delivery=delivery,
        )


@dataclass(frozen=True)
class RecordPage:
    """A page of open records, oldest first, without their deliveries, and the token of the next page."""

    items: Sequence[Record]
    continuation_token: str | None


class SetAside(Protocol):
    """Stores the records of one subscription. Every call raises StoreUnavailable if it is not answered."""

    async def add(self, record: Record) -> None:
        """Create the record, unless one with its id exists, in whatever state."""

    async def waits(self, aggregate: AggregateKey) -> bool:
        """Whether a record of the aggregate waits, with a consistent read (``aside-consistent``)."""

    async def page(self, size: int, continuation_token: str | None) -> RecordPage:
        """Returns open records, oldest first. Raises UnknownContinuation of the store's adapter."""

    async def count(self, state: RecordState) -> int:
        """Returns the number of records in this state."""

    async def get(self, record_id: str) -> Record:
        """Returns one record, open or closed, with the rest of its delivery. Raises NotSetAside: there is none."""

    def waiting(self, aggregate: AggregateKey | None = None) -> AsyncIterator[Record]:
        """Yields waiting records without deliveries, last tried last; of one aggregate with a consistent read."""

    def older(self, than: datetime) -> AsyncIterator[Record]:
        """Yields the open records that were set aside before ``than``, without their deliveries."""

    async def change(self, record: Record, state: RecordState, reason: str, *, attempts: int) -> None:
        """Write a record's new state, at the version that was read. Raises RecordChanged."""


def record_document(record: Record, subscription: str) -> dict[str, Any]:
    """Returns the document of a record. The message's body is kept unchanged, in base64; a closed record has none."""
    aggregate, delivery = record.aggregate, record.delivery if record.state.is_open else None
    return {
        "id": record.id,
        "subscription": subscription,
        "state": record.state.value,
        "reason": record.reason,
        "setAsideAt": record.set_aside_at.isoformat(),
        "attempts": record.attempts,
        "messageId": record.message_id,
        "enqueuedNumber": record.enqueued_number,
        "eventId": record.event_id,
        "aggregateType": aggregate.type if aggregate else None,
        "aggregateId": aggregate.id if aggregate else None,
        "action": record.action,
        "sequence": record.sequence,
        "body": base64.b64encode(delivery.body).decode() if delivery else None,
        "properties": dict(delivery.properties) if delivery else None,
    }


def record_of(document: Mapping[str, Any], version: str) -> Record:
    """Returns the record in a document, without its message if the body was not read."""
    body, owner = document.get("body"), document.get("aggregateType")
    delivery = None
    if body is not None:
        number, properties = document["enqueuedNumber"], document["properties"]
        came = base64.b64decode(body)
        delivery = Delivery(document["subscription"], document["messageId"], number, came, properties)
    return Record(
        id=document["id"],
        state=RecordState(document["state"]),
        reason=document["reason"],
        set_aside_at=datetime.fromisoformat(document["setAsideAt"]),
        message_id=document["messageId"],
        enqueued_number=document["enqueuedNumber"],
        event_id=document.get("eventId"),
        aggregate=AggregateKey(owner, document["aggregateId"]) if owner else None,
        action=document.get("action"),
        sequence=document.get("sequence"),
        attempts=document["attempts"],
        delivery=delivery,
        version=version,
    )
