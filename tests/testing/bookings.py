"""A small service, as a user has one: a booking, a board of them, and a mail about each."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, Self
from uuid import UUID, uuid4

from cosmos_outbox import (
    After,
    Aggregate,
    AggregateState,
    DomainEvent,
    EntrySchema,
    Event,
    Names,
    Service,
    Timestamp,
    TolerantReader,
)


class BookingState(AggregateState):
    id: UUID
    title: str
    seats: int = 1
    created_at: Timestamp
    deleted: bool = False


class BookingCreated(DomainEvent):
    action: Literal["BookingCreated"] = "BookingCreated"
    booking_id: UUID
    title: str
    seats: int


class SeatsChanged(DomainEvent):
    action: Literal["SeatsChanged"] = "SeatsChanged"
    booking_id: UUID
    seats: int


class BookingDeleted(DomainEvent):
    action: Literal["BookingDeleted"] = "BookingDeleted"
    booking_id: UUID


class Booking(Aggregate[BookingState]):
    aggregate_type: ClassVar[str] = "booking"
    state_type: ClassVar[type[AggregateState]] = BookingState
    created_event: ClassVar[type[DomainEvent] | None] = BookingCreated
    changed_events: ClassVar[Mapping[str, type[DomainEvent]]] = {
        "seats": SeatsChanged,
        "deleted": BookingDeleted,
    }

    @classmethod
    def create(cls, title: str, *, booking_id: UUID | None = None) -> Self:
        return cls(
            BookingState(id=booking_id or uuid4(), title=title, created_at=datetime.now(UTC)), is_new=True
        )

    @property
    def aggregate_id(self) -> str:
        return str(self._state.id)

    @property
    def deleted(self) -> bool:
        return self._state.deleted

    def resize(self, seats: int) -> None:
        if seats < 1:
            raise ValueError("a booking has a seat")
        self._set("seats", seats, datetime.now(UTC))

    def delete(self) -> None:
        self._set("deleted", True, datetime.now(UTC))


class Row(TolerantReader):
    title: str
    seats: int


def row_of(booking: Mapping[str, Any]) -> Row:
    return Row.model_validate(booking)


def project(row: Row, event: Event) -> After[Row] | None:
    match event.action:
        case "SeatsChanged":
            return After(row.model_copy(update={"seats": event.data["seats"]}))
        case "BookingDeleted":
            return After(None)
    return None


FORM = EntrySchema(Row, search={"title": lambda row: row.title.casefold()}, sorted_by=["title"])

service = Service(
    "bookings", [Booking], Names(database="bookings", container="bookings", topic="booking-events")
)
board = service.read_model("board", of=Booking, form=FORM, state_of=row_of, project=project)

mailed: list[str] = []
"""The idempotency keys of the mails."""
answers: list[Exception] = []
"""What the mail service answers in turn; nothing: it takes the mail."""


@service.effect("mails", of=Booking)
async def mail(event: Event) -> None:
    """One mail for each event."""
    if answers:
        raise answers.pop(0)
    mailed.append(event.id)
