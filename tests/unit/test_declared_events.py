"""Events of simple changes are declared: what they carry follows from the state; a mistake is found at the import."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import Field, ValidationError

from cosmos_outbox.contracts.schemas import schema
from cosmos_outbox.outbox.aggregate import STORED, Aggregate, AggregateState, input_rule
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
    meals: Mapping[Literal["lunch", "dinner"], int] | None = None


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


def events(booking: Base) -> list[dict[str, Any]]:
    changes = booking.changes()
    assert changes is not None
    return [event.model_dump(mode="json", by_alias=True, exclude={"id"}) for event in changes.events]


def test_a_new_aggregates_event_has_what_it_declares() -> None:
    state = stored(note="by the window")
    assert events(Booking(state, is_new=True)) == [
        {
            "action": "BookingMade", "sequence": 1, "createdAt": "2026-03-01T12:00:00Z", "bookingId": str(state.id),
            "table": 1, "booking": {"id": str(state.id), "guest": {"name": "Ada"}, "note": "by the window"},
        }
    ]  # fmt: skip


def test_a_changed_property_has_its_last_value_and_a_flag_its_time() -> None:
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


def test_a_property_without_an_event_is_refused_when_it_is_set() -> None:
    booking = Booking.load(stored())
    with pytest.raises(
        TypeError, match="no event says that note of a booking changed: add it to changed_events"
    ):
        booking.change(NOON, note="by the window")
    assert booking.changes() is None


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


class Regular(Guest):
    visits: int


class OtherGuest(BookingEvent):
    guest: Regular


class OtherMeals(BookingEvent):
    meals: Mapping[Literal["lunch", "supper"], int] | None


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
    ({"created_event": OtherGuest}, "OtherGuest has guest as Regular, BookingState as Guest: make them one type"),
    ({"created_event": OtherMeals}, "OtherMeals has meals as "),
    ({"created_event": Nameless}, 'Nameless needs its own name: add action: Literal["Nameless"] = "Nameless"'),
    ({"changed_events": {"phone": BookingMoved}}, "changed_events names phone, which BookingState has not"),
    ({"changed_events": {"table": OfAnother}}, "OfAnother reports a change of table, and has no such field: add table"),
    ({"created_event": None}, "Wrong: no event says that a booking exists: set created_event, or write _created"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "reported"), MISTAKES, ids=lambda each: None if isinstance(each, str) else str(each)
)
def test_a_mistake_is_an_error_when_the_class_is_made(declared: dict[str, Any], reported: str) -> None:
    with pytest.raises(TypeError) as raised:
        type("Wrong", (Base,), {
            "aggregate_type": "booking", "state_type": BookingState, "created_event": BookingMade, **declared,
        })  # fmt: skip
    assert reported in str(raised.value)


def test_a_state_without_its_time_of_creation_is_a_mistake() -> None:
    class Timeless(AggregateState):
        id: UUID
        table: int

    class Made(DomainEvent):
        action: Literal["Made"] = "Made"
        booking_id: UUID

    with pytest.raises(TypeError, match="Timeless needs created_at"):
        type("Wrong", (Base,), {"aggregate_type": "booking", "state_type": Timeless, "created_event": Made})


class NewBooking(WireModel):
    """What a guest decides."""

    guest: Guest
    table: Annotated[int, Field(strict=True)]
    note: Annotated[str, input_rule(_no_longer_allowed)] | None


class Named(Base):
    """By names alone; what would be written by hand stands beside each event."""

    aggregate_type: ClassVar[str] = "booking"
    state_type: ClassVar[type[AggregateState]] = BookingState
    created_event, created_payload = "NamedMade", NewBooking
    changed_events: ClassVar[Mapping[str, str]] = {
        "table": "NamedMoved", "note": "NamedNoted", "cancelled": "NamedCancelled", "cancelled_at": "NamedCancelledAt",
    }  # fmt: skip


class NamedMade(BookingEvent):
    """Differs from its twin by these words alone."""

    action: Literal["NamedMade"] = "NamedMade"
    guest: Guest
    table: int
    note: str | None


class NamedMoved(BookingEvent):
    """Differs from its twin by these words alone."""

    action: Literal["NamedMoved"] = "NamedMoved"
    table: int


class NamedNoted(BookingEvent):
    """Differs from its twin by these words alone."""

    action: Literal["NamedNoted"] = "NamedNoted"
    note: str | None


class NamedCancelled(BookingEvent):
    """Differs from its twin by these words alone."""

    action: Literal["NamedCancelled"] = "NamedCancelled"
    cancelled: bool


class NamedCancelledAt(BookingEvent):
    """Differs from its twin by these words alone."""

    action: Literal["NamedCancelledAt"] = "NamedCancelledAt"
    cancelled_at: Timestamp | None


BY_HAND: list[type[DomainEvent]] = [NamedMade, NamedMoved, NamedNoted, NamedCancelled, NamedCancelledAt]


def published(kind: type[DomainEvent]) -> dict[str, Any]:
    reported = schema(kind)
    del reported["description"]
    return reported


def test_an_event_declared_by_name_is_published_like_one_by_hand() -> None:
    made = Named.declared_events()
    assert [published(each) for each in made] == [published(each) for each in BY_HAND]
    assert schema(made[1])["description"] == "The booking has another table."


def test_an_event_declared_by_name_carries_what_one_by_hand_does() -> None:
    class ByHand(Base):
        aggregate_type: ClassVar[str] = "booking"
        state_type: ClassVar[type[AggregateState]] = BookingState
        created_event: ClassVar[type[DomainEvent]] = NamedMade
        changed_events: ClassVar[Mapping[str, type[DomainEvent]]] = dict(
            zip(Named.changed_events, BY_HAND[1:], strict=True)
        )

    state, reported = (
        stored(note="by the window", guest=Guest.model_validate({"name": "Ada", "since": 3})),
        [],
    )
    for kind in (Named, ByHand):
        changed = kind.load(state)
        changed.change(ONE, table=2, note=None, cancelled=True, cancelled_at=ONE)
        reported.append([*events(kind(state, is_new=True)), *events(changed)])
    assert reported[0] == reported[1]
    assert reported[0][0] == {
        "action": "NamedMade", "sequence": 1, "createdAt": "2026-03-01T12:00:00Z", "bookingId": str(state.id),
        "guest": {"name": "Ada", "since": 3}, "table": 1, "note": "by the window",
    }  # fmt: skip
    assert reported[0][4]["cancelledAt"] == "2026-03-01T13:00:00Z"


def test_the_event_of_the_end_is_known_by_its_name_alone() -> None:
    class Ending(BookingState):
        deleted: bool = False

    class Ended(Base):
        aggregate_type: ClassVar[str] = "booking"
        state_type: ClassVar[type[AggregateState]] = Ending
        created_event, created_payload = "BookingMade", NewBooking
        changed_events: ClassVar[Mapping[str, str]] = {"deleted": "BookingEnded"}

    _, ended = Ended.declared_events()
    assert set(ended.model_fields) == {*DomainEvent.model_fields, "booking_id"}


class WithId(WireModel):
    id: UUID


class Unknown(WireModel):
    phone: str


NAMED_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"created_payload": None}, "Wrong: created_payload and a created_event that is declared by its name belong"),
    ({"created_event": BookingMade}, "Wrong: created_payload and a created_event that is declared by its name belong"),
    ({"created_payload": WithId}, "Wrong: BookingMade cannot carry id, which every event has for itself: leave it out"),
    ({"created_payload": Unknown}, "Wrong: BookingMade has phone, which BookingState has not: add it there"),
    ({"changed_events": {"table": "Booking moved"}}, "Wrong: 'Booking moved' cannot name an event: take one word"),
    ({"changed_events": {"phone": "BookingMoved"}}, "changed_events names phone, which BookingState has not"),
    ({"changed_events": {"created_at": "BookingMoved"}}, "Wrong: BookingMoved cannot carry created_at, which every"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "reported"), NAMED_MISTAKES, ids=lambda each: None if isinstance(each, str) else str(each)
)
def test_a_mistake_in_a_name_is_an_error_when_the_class_is_made(
    declared: dict[str, Any], reported: str
) -> None:
    with pytest.raises(TypeError) as raised:
        type("Wrong", (Base,), {
            "aggregate_type": "booking", "state_type": BookingState, "created_event": "BookingMade",
            "created_payload": NewBooking, **declared,
        })  # fmt: skip
    assert reported in str(raised.value)


def test_no_event_has_a_field_of_its_cause() -> None:
    with pytest.raises(TypeError, match="Blamed: the outbox itself fills causedBy of an event"):

        class Blamed(DomainEvent):
            action: Literal["Blamed"] = "Blamed"
            caused_by: str


def test_an_input_rule_spares_stored_values_and_its_error_shows_none() -> None:
    def few(seats: int) -> int:
        if seats > 8:
            raise ValueError("at most 8 seats")
        return seats

    class Seats(WireModel):
        seats: Annotated[int, input_rule(few)]

    with pytest.raises(ValidationError, match="at most 8 seats") as refused:
        Seats.model_validate({"seats": 4711})
    assert "4711" not in str(refused.value)
    assert Seats.model_validate({"seats": 4711}, context=STORED).seats == 4711
