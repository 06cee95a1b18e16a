"""A message that cannot be applied is kept in a record that is only ever created: a redelivery revives none.

A record is *waiting* (it is tried again) or *refused* (it never can be applied); it is closed as *applied*, *discarded*
or *overdue*. A closed record has lost the message's body, which holds personal data, and expires.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey


class RecordState(StrEnum):
    """What is to become of a record, or has become of it."""

    WAITING = "waiting"
    REFUSED = "refused"
    APPLIED = "applied"
    DISCARDED = "discarded"
    OVERDUE = "overdue"

    @property
    def is_open(self) -> bool:
        """Whether somebody has to do something about the record: the timer, or an operator."""
        return self in (RecordState.WAITING, RecordState.REFUSED)


@dataclass(frozen=True)
class Delivery:
    """A message as the broker delivered it."""

    subscription: str
    message_id: str
    enqueued_number: int
    """The number that the broker gave the message: another message with the same id has another number."""
    body: bytes = field(repr=False)
    properties: Mapping[str, Any] = field(repr=False)

    @property
    def record_id(self) -> str:
        """The id of the message's record, the same for each delivery of the message (``created-once``)."""
        name = json.dumps([self.subscription, self.message_id, self.enqueued_number])
        return hashlib.sha256(name.encode()).hexdigest()[:32]


Receive = Callable[[Delivery], Awaitable[None]]
"""Handles a message. Raises StoreAway, after a wait: the message is given back."""

Keep = Callable[[Delivery, str], Awaitable[None]]
"""Stores the record of a message, with the reason for which it became a dead letter."""


@dataclass(frozen=True)
class Collected:
    """What one collecting did."""

    messages: int
    emptied: bool
    """Whether the queue was seen to be empty at the end; False: what is left in it is not known."""


@dataclass(frozen=True)
class Record:
    """A message that was set aside. ``delivery`` None: the record is closed, or the body was too large to keep."""

    id: str
    state: RecordState
    reason: str
    """Why, without personal data; of a discarded one the operator's words."""
    set_aside_at: datetime
    message_id: str
    enqueued_number: int
    event_id: str | None
    aggregate: AggregateKey | None
    action: str | None
    sequence: int | None
    attempts: int = 0
    """How often it was tried again since it was set aside."""
    delivery: Delivery | None = None
    version: str | None = None

    @classmethod
    def of(
        cls, delivery: Delivery, event: Event | None, state: RecordState, reason: str, at: datetime
    ) -> "Record":
        """A new record; ``event`` None: the message is none."""
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
    """A page of open records, oldest first, without their deliveries; the token of the next page."""

    items: Sequence[Record]
    continuation_token: str | None


class SetAside(Protocol):
    """The records of one subscription. Every call raises StoreAway when it was not answered."""

    async def add(self, record: Record) -> None:
        """Create the record, unless there is one of its id, whatever its state."""

    async def waits(self, aggregate: AggregateKey) -> bool:
        """Whether a record of the aggregate waits, as of now (``aside-fenced``)."""

    async def page(self, size: int, continuation_token: str | None) -> RecordPage:
        """Open records, oldest first. Raises UnknownContinuation of the store's adapter."""

    async def count(self, state: RecordState) -> int:
        """How many records are in this state."""

    async def get(self, record_id: str) -> Record:
        """One record, open or closed, with what is left of its delivery. Raises NotSetAside: there is none."""

    def waiting(self, aggregate: AggregateKey | None = None) -> AsyncIterator[Record]:
        """The records that wait, without their deliveries, the last tried last; of one aggregate, as of now."""

    def older(self, than: datetime) -> AsyncIterator[Record]:
        """The open records that were set aside before then, without their deliveries."""

    async def change(self, record: Record, state: RecordState, reason: str, *, attempts: int) -> None:
        """Write what became of a record, at the version that was read. Raises RecordChanged."""
