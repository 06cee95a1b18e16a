"""The Person aggregate, and the events of its changes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Self
from uuid import UUID, uuid4

from cosmos_outbox import Aggregate, AggregateState, Timestamp, WireModel, input_rule


def _some_text(text: str) -> str:
    if not 1 <= len(text.strip()) <= 200:
        raise ValueError("must have 1 to 200 characters that are not spaces around it")
    return text.strip()


Text = Annotated[str, input_rule(_some_text)]


class Details(WireModel):
    """The part of a person that a caller decides."""

    name: Text
    email: Text


class PersonState(Details, AggregateState):
    """A person as stored."""

    id: UUID
    created_at: Timestamp
    deleted: bool = False


class Person(Aggregate[PersonState]):
    """Somebody with a name and an email address."""

    aggregate_type: ClassVar[str] = "person"
    state_type: ClassVar[type[AggregateState]] = PersonState
    created_event, created_payload = "PersonAddedEvent", Details
    changed_events: ClassVar[Mapping[str, str]] = {
        "name": "PersonRenamedEvent", "email": "PersonEmailChangedEvent", "deleted": "PersonDeletedEvent",
    }  # fmt: skip

    @classmethod
    def add(cls, details: Details, *, at: datetime, id: UUID | None = None) -> Self:  # noqa: A002 - its id
        """Somebody new, not stored yet."""
        return cls(PersonState(**dict(details), id=id or uuid4(), created_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The id as text: the person and its events are partitioned by it."""
        return str(self._state.id)

    @property
    def deleted(self) -> bool:
        """Whether the person is gone for every reader."""
        return self._state.deleted

    def change(self, details: Details, *, at: datetime) -> None:
        """Each property that is another one now raises its event."""
        self._set("name", details.name, at)
        self._set("email", details.email, at)

    def delete(self, *, at: datetime) -> None:
        """Forget the person."""
        self._set("deleted", True, at)
