"""Events of simple changes are declared: what they carry follows from the state; a mistake is found at the import."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import Field, ValidationError

from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, input_rule
from cosmos_outbox.outbox.event import DomainEvent, Timestamp, WireModel

NOON, ONE = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 13, tzinfo=UTC)


def _no_longer_allowed(text: str) -> str:
    raise ValueError("a rule that was made after the value was stored")


class Guest(WireModel):
    name: str


class BookingState(AggregateState):
    id: UUID
    created_at: Timestamp
    guest: Guest
    table: Annotated[int, Field(strict=True)] = 1
    note: Annotated[str, input_rule(_no_longer_allowed)] | None = None
    cancelled: bool = False
    cancelled_at: Timestamp | None = None


class PublishedBooking(WireModel):
    id: UUID
    guest: Guest
    note: Annotated[str, input_rule(_no_longer_allowed)] | None


class BookingEvent(DomainEvent):
    booking_id: UUID


class BookingMade(BookingEvent):
    action: Literal["BookingMade"] = "BookingMade"
    table: int
    booking: PublishedBooking


class BookingMoved(BookingEvent):
    action: Literal["BookingMoved"] = "BookingMoved"
    table: int
    guest: Guest


class BookingCancelled(BookingEvent):
    action: Literal["BookingCancelled"] = "BookingCancelled"
    cancelled_at: Timestamp


class Base(Aggregate[BookingState]):
    """Without a type of its own, it is no aggregate yet: nothing is asked of it."""

    @property
    def aggregate_id(self) -> str:
        return str(self._state.id)

    def change(self, at: datetime, **values: object) -> None:
        for name, value in values.items():
            self._set(name, value, at)


class Booking(Base):
    aggregate_type: ClassVar[str] = "booking"
    state_type: ClassVar[type[AggregateState]] = BookingState
    created_event: ClassVar[type[DomainEvent] | None] = BookingMade
    changed_events: ClassVar[Mapping[str, type[DomainEvent]]] = {
        "table": BookingMoved,
        "cancelled": BookingCancelled,
    }

    def _stamps(self, changed: Any, at: datetime) -> Mapping[str, Any]:
        return {"cancelled_at": at} if "cancelled" in changed else {}


def stored(**values: Any) -> BookingState:
    return BookingState.model_construct(
        **{"id": uuid4(), "created_at": NOON, "guest": Guest(name="Ada"), "table": 1, "note": None, **values}
    )


def events(booking: Booking) -> list[dict[str, Any]]:
    changes = booking.changes()
    assert changes is not None
    return [event.model_dump(mode="json", by_alias=True, exclude={"id"}) for event in changes.events]


def test_a_new_aggregate_tells_what_its_event_declares() -> None:
    state = stored(note="by the window")
    assert events(Booking(state, is_new=True)) == [
        {
            "action": "BookingMade", "sequence": 1, "createdAt": "2026-03-01T12:00:00Z", "bookingId": str(state.id),
            "table": 1, "booking": {"id": str(state.id), "guest": {"name": "Ada"}, "note": "by the window"},
        }
    ]  # fmt: skip


def test_a_changed_property_tells_its_last_value_and_a_flag_its_time() -> None:
    state = stored(last_sequence=4)
    booking = Booking.load(state)
    booking.change(NOON, table=2, cancelled=True)
    booking.change(ONE, table=3)
    moved, cancelled = events(booking)
    assert moved == {
        "action": "BookingMoved", "sequence": 5, "createdAt": "2026-03-01T13:00:00Z", "bookingId": str(state.id),
        "table": 3, "guest": {"name": "Ada"},
    }  # fmt: skip
    assert (cancelled["sequence"], cancelled["cancelledAt"]) == (6, "2026-03-01T13:00:00Z")


def test_what_a_later_version_has_stored_in_a_value_is_told_too() -> None:
    guest = Guest.model_validate({"name": "Ada", "loyalty": "gold"})
    booking = Booking.load(stored(guest=guest))
    booking.change(NOON, table=2)
    assert events(booking)[0]["guest"] == {"name": "Ada", "loyalty": "gold"}


def test_a_property_without_an_event_is_refused_when_it_is_set() -> None:
    booking = Booking.load(stored())
    with pytest.raises(
        TypeError, match="no event tells that note of a booking changed: add it to changed_events"
    ):
        booking.change(NOON, note="by the window")
    assert booking.changes() is None


def test_a_value_that_the_event_does_not_take_is_refused() -> None:
    class NoteTaken(BookingEvent):
        action: Literal["NoteTaken"] = "NoteTaken"
        note: str

    class Noted(Booking):
        changed_events: ClassVar[Mapping[str, type[DomainEvent]]] = {"note": NoteTaken}

    booking = Noted.load(stored(note="by the window"))
    booking.change(NOON, note=None)
    with pytest.raises(ValidationError):
        booking.changes()


class NoId(DomainEvent):
    table: int


class Lacking(BookingEvent):
    table: int
    phone: str


class OtherType(BookingEvent):
    table: str


class OtherWhole(BookingEvent):
    class Whole(WireModel):
        phone: str

    table: int
    booking: Whole


class Nameless(BookingEvent):
    table: int


class OfAnother(BookingEvent):
    action: Literal["OfAnother"] = "OfAnother"
    guest: Guest


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"created_event": NoId}, "Wrong: NoId needs booking_id, the id of its booking: add booking_id: UUID"),
    ({"created_event": Lacking}, "Lacking has phone, which BookingState has not: add it there, give it a default"),
    ({"created_event": OtherType}, "OtherType has table as str, BookingState as int: make them one type"),
    ({"created_event": OtherWhole}, "Whole has phone, which BookingState has not"),
    ({"created_event": Nameless}, 'Nameless needs its own name: add action: Literal["Nameless"] = "Nameless"'),
    ({"changed_events": {"phone": BookingMoved}}, "changed_events names phone, which BookingState has not"),
    ({"changed_events": {"table": OfAnother}}, "OfAnother does not tell table, though it is its event: add table"),
    ({"created_event": None}, "Wrong: no event says that a booking exists: set created_event, or write _created"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "told"), MISTAKES, ids=lambda each: None if isinstance(each, str) else str(each)
)
def test_a_mistake_is_an_error_when_the_class_is_made(declared: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError) as raised:
        type("Wrong", (Base,), {
            "aggregate_type": "booking", "state_type": BookingState, "created_event": BookingMade, **declared,
        })  # fmt: skip
    assert told in str(raised.value)


def test_a_state_without_its_time_of_creation_is_a_mistake() -> None:
    class Timeless(AggregateState):
        id: UUID
        table: int

    class Made(DomainEvent):
        action: Literal["Made"] = "Made"
        booking_id: UUID

    with pytest.raises(TypeError, match="Timeless needs created_at"):
        type("Wrong", (Base,), {"aggregate_type": "booking", "state_type": Timeless, "created_event": Made})


def test_a_field_with_a_default_that_the_state_lacks_keeps_it() -> None:
    class Made(BookingEvent):
        action: Literal["Made"] = "Made"
        kind: str = "dinner"

    made = type("Made2", (Booking,), {"created_event": Made})
    changes = made(stored(), is_new=True).changes()
    assert changes.events[0].kind == "dinner"
