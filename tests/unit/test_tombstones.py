"""A deletion empties an aggregate of any type to its id, its times and its last sequence."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item, aggregate_item
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, Changes
from cosmos_outbox.outbox.event import DomainEvent
from domain.contact import Contact
from tests.support.contacts import DETAILS
from tests.support.tasks import Details, Place, Task

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, 30, tzinfo=UTC)


def changes_of(aggregate: Aggregate[Any]) -> Changes[Any]:
    changes: Changes[Any] | None = aggregate.changes()
    assert changes is not None
    return changes


def stored(aggregate: Aggregate[Any]) -> dict[str, Any]:
    return aggregate_item(aggregate, changes_of(aggregate).state, ttl=600) | {"_etag": "1"}


def test_a_deleted_contact_keeps_id_times_and_last_sequence() -> None:
    contact = aggregate_from_item(Contact, stored(Contact.create(DETAILS, at=NOON))).aggregate
    contact.describe("met in Oslo", at=LATER)
    contact.delete(at=LATER)
    item = stored(contact)
    assert item["data"] == {
        "id": str(contact.id), "createdAt": "2026-03-01T12:00:00Z", "modifiedAt": "2026-03-01T13:30:00Z",
        "deletedAt": "2026-03-01T13:30:00Z", "deleted": True, "lastSequence": 3,
    }  # fmt: skip
    read = aggregate_from_item(Contact, item).aggregate
    assert (read.deleted, read.key, read.state.last_sequence) == (True, contact.key, 3)


def test_the_event_of_a_contacts_deletion_holds_nothing_personal() -> None:
    contact = aggregate_from_item(Contact, stored(Contact.create(DETAILS, at=NOON))).aggregate
    contact.delete(at=LATER)
    [event] = changes_of(contact).events
    reported = {*event.model_dump(mode="json", by_alias=True)}
    assert reported == {"id", "contactId", "action", "sequence", "createdAt", "deletedAt"}


def test_what_a_later_version_has_stored_is_gone_too() -> None:
    item = stored(Contact.create(DETAILS, at=NOON))
    item["data"]["phone"] = "+47 1234"
    contact = aggregate_from_item(Contact, item).aggregate
    contact.delete(at=LATER)
    assert "1234" not in str(stored(contact))


def test_a_deleted_aggregate_of_any_type_is_emptied() -> None:
    details = Details(title="call Ann", note="at home", place=Place(room="Ann's"))
    task = Task.create(details, at=NOON)
    task = aggregate_from_item(Task, stored(task)).aggregate
    task.delete(at=LATER)
    item = stored(task)
    assert {*item["data"]} == {"id", "createdAt", "deleted", "lastSequence"}
    read = aggregate_from_item(Task, item).aggregate
    assert (read.deleted, read.key, read.partition_key) == (True, task.key, task.partition_key)


class SeatShown(BaseModel):
    row: int


class SeatState(AggregateState):
    hall: str
    row: int
    guest: str | None = None
    created_at: datetime = NOON
    deleted: bool = False


class Seat(Aggregate[SeatState]):
    aggregate_type: ClassVar[str] = "seat"
    state_type: ClassVar[type[AggregateState]] = SeatState
    created_event: ClassVar[type[DomainEvent] | str | None] = "SeatMade"
    created_payload: ClassVar[type[BaseModel] | None] = SeatShown
    changed_events: ClassVar[Mapping[str, type[DomainEvent] | str]] = {
        "guest": "SeatTaken",
        "deleted": "SeatRemoved",
    }

    @property
    def aggregate_id(self) -> str:
        return f"{self._state.hall}-{self._state.row}"

    @property
    def partition_key(self) -> str:
        return self._state.hall

    @property
    def deleted(self) -> bool:
        return self._state.deleted

    def remove(self) -> None:
        self._set("deleted", True, LATER)


class KnownSeat(Seat):
    kept_after_deletion: ClassVar[Sequence[str]] = ("hall", "row")


def test_an_aggregate_names_what_its_id_is_made_of() -> None:
    seat = KnownSeat.load(SeatState(hall="north", row=7, guest="Ada", last_sequence=1))
    seat.remove()
    item = stored(seat)
    assert {*item["data"]} == {"hall", "row", "createdAt", "deleted", "lastSequence"}
    assert aggregate_from_item(KnownSeat, item).aggregate.aggregate_id == "north-7"
    other = Seat.load(SeatState(hall="north", row=7, last_sequence=1))
    other.remove()
    with pytest.raises(TypeError, match="name in kept_after_deletion all fields that"):
        stored(other)
