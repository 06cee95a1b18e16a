"""What an event tells has the type that it has in the state, or a base of it: else the class is not made."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import Field, ValidationError

from cosmos_outbox.outbox.aggregate import STORED, Aggregate, AggregateState, input_rule
from cosmos_outbox.outbox.event import DomainEvent, Timestamp, WireModel

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Guest(WireModel):
    name: str


class Member(Guest):
    since: int


class BookingState(AggregateState):
    id: UUID
    created_at: Timestamp
    guest: Member
    tables: list[Annotated[int, Field(ge=1)]]
    meals: dict[Literal["lunch", "dinner"], int]
    note: str | None = None


class BookingEvent(DomainEvent):
    booking_id: UUID


class Base(Aggregate[BookingState]):
    @property
    def aggregate_id(self) -> str:
        return str(self._state.id)

    def take_note(self, note: str) -> None:
        self._set("note", note, NOON)


def declared(event: type[DomainEvent] | None = None, **others: Any) -> type[Base]:
    return type("Booking", (Base,), {
        "aggregate_type": "booking", "state_type": BookingState, "created_event": event, **others,
    })  # fmt: skip


STATE = BookingState(
    id=uuid4(), created_at=NOON, guest=Member(name="Ada", since=3), tables=[1, 2], meals={"lunch": 2}
)


def test_a_base_of_the_type_and_the_same_type_told_in_other_words_fit() -> None:
    class Made(BookingEvent):
        action: Literal["Made"] = "Made"
        guest: Guest
        tables: list[int]
        meals: dict[Literal["lunch", "dinner"], int]

    changes = declared(Made)(STATE, is_new=True).changes()
    assert changes is not None
    told = changes.events[0].model_dump(include={"guest", "tables", "meals"})
    assert told == {"guest": {"name": "Ada"}, "tables": [1, 2], "meals": {"lunch": 2}}


class OtherGuest(BookingEvent):
    class Regular(Member):
        visits: int

    guest: Regular


class OtherTables(BookingEvent):
    tables: list[str]


class OtherMeals(BookingEvent):
    meals: dict[Literal["lunch", "supper"], int]


class NoWhole(BookingEvent):
    booking: str


class OneOrNoWhole(BookingEvent):
    booking: Guest | None


MISTAKES = [
    (OtherGuest, "OtherGuest has guest as Regular, BookingState as Member: make them one type"),
    (OtherTables, "OtherTables has tables as list[str], BookingState as list["),
    (OtherMeals, "OtherMeals has meals as "),
    (NoWhole, "NoWhole has booking, which BookingState has not: add it there"),
    (OneOrNoWhole, "OneOrNoWhole has booking, which BookingState has not: add it there"),
]


@pytest.mark.parametrize(("event", "told"), MISTAKES)
def test_another_type_is_a_mistake(event: type[DomainEvent], told: str) -> None:
    with pytest.raises(TypeError) as raised:
        declared(event)
    assert told in str(raised.value)


def test_a_base_with_a_part_of_what_an_aggregate_has_is_none_yet() -> None:
    class Half(Base):
        state_type: ClassVar[type[AggregateState]] = BookingState

    assert Half.declared_events() == []


def test_a_base_of_a_teams_own_is_told_of_each_class() -> None:
    class Registered:
        names: ClassVar[list[str]] = []

        def __init_subclass__(cls, *, name: str) -> None:
            Registered.names.append(name)

    class Booking(Base, Registered, name="bookings"):
        pass

    assert Registered.names == ["bookings"]


def test_who_makes_some_events_by_hand_is_told_which_property_has_none() -> None:
    class Made(BookingEvent):
        action: Literal["Made"] = "Made"

    class ByHand(Base):
        aggregate_type: ClassVar[str] = "booking"
        state_type: ClassVar[type[AggregateState]] = BookingState
        created_event: ClassVar[type[DomainEvent]] = Made
        changed_events: ClassVar[Mapping[str, str]] = {}

        def _updated(self, name: str, state: BookingState, sequence: int, at: datetime) -> DomainEvent:
            return super()._updated(name, state, sequence, at)

    booking = ByHand.load(STATE)
    booking.take_note("by the window")
    with pytest.raises(TypeError, match="no event tells that note of a booking changed"):
        booking.changes()


def test_what_was_told_or_stored_cannot_be_changed_and_no_event_is_numbered_before_the_first() -> None:
    told = BookingEvent(action="Made", sequence=1, created_at=NOON, booking_id=STATE.id)
    for fact, name in ((told, "sequence"), (STATE, "note")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(fact, name, 2)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        BookingEvent(action="Made", sequence=0, created_at=NOON, booking_id=STATE.id)


def test_a_rule_for_callers_is_not_asked_of_what_is_stored_and_its_error_shows_no_value() -> None:
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
