"""The Contact aggregate: it changes only through its methods, and every change of a property raises its event."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Self
from uuid import UUID, uuid4

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, WireModel
from domain.errors import ContactDeleted
from domain.events import (
    ContactCompanyUpdatedEvent,
    ContactCreatedEvent,
    ContactDeletedEvent,
    ContactDescriptionUpdatedEvent,
    ContactEmailUpdatedEvent,
    ContactNameUpdatedEvent,
)
from domain.values import Company, ContactDetails, ContactState, Name


class Contact(Aggregate[ContactState]):
    """A person, how to reach them and where they work."""

    aggregate_type: ClassVar[str] = "contact"
    state_type: ClassVar[type[AggregateState]] = ContactState
    created_event: ClassVar[type[DomainEvent] | None] = ContactCreatedEvent
    found_by: ClassVar[Sequence[str]] = ("email",)
    changed_events: ClassVar[Mapping[str, type[DomainEvent]]] = {
        "name": ContactNameUpdatedEvent,
        "email": ContactEmailUpdatedEvent,
        "description": ContactDescriptionUpdatedEvent,
        "company": ContactCompanyUpdatedEvent,
        "deleted": ContactDeletedEvent,
    }

    @classmethod
    def create(cls, details: ContactDetails, *, at: datetime, id: UUID | None = None) -> Self:  # noqa: A002 - its id
        """Returns a new contact, not stored yet. ``at``: the time of creation (UTC)."""
        # The details were checked when they were made: the address is not checked again.
        state = ContactState.model_construct(**dict(details), id=id or uuid4(), created_at=at)
        return cls(state, is_new=True)

    @property
    def id(self) -> UUID:
        """The contact's identity, and the key of the partition that it shares with its events."""
        return self._state.id

    @property
    def aggregate_id(self) -> str:
        """The contact's id as text."""
        return str(self.id)

    @property
    def deleted(self) -> bool:
        """Whether the contact is gone for every reader."""
        return self._state.deleted

    @property
    def details(self) -> ContactDetails:
        """The current values that a caller can set."""
        return ContactDetails.model_construct(
            **{name: getattr(self._state, name) for name in ContactDetails.model_fields}
        )

    def rename(self, name: Name, *, at: datetime) -> None:
        """Changes the contact's name."""
        self._change("name", name, at)

    def change_email(self, email: str, *, at: datetime) -> None:
        """Changes the contact's email address."""
        self._change("email", email, at)

    def describe(self, description: str | None, *, at: datetime) -> None:
        """Replaces or removes the contact's description."""
        self._change("description", description, at)

    def change_company(self, company: Company | None, *, at: datetime) -> None:
        """Replaces or removes the contact's company."""
        self._change("company", company, at)

    def revise(self, details: ContactDetails, *, at: datetime) -> None:
        """Sets all details; only a property that differs is a change."""
        self.rename(details.name, at=at)
        self.change_email(details.email, at=at)
        self.describe(details.description, at=at)
        self.change_company(details.company, at=at)

    def delete(self, *, at: datetime) -> None:
        """Deletes the contact for every reader; its document stays as a tombstone until TTL removes it."""
        if self._is_new:
            raise ValueError(
                "a contact that was never stored cannot be deleted: do not add it to a unit of work"
            )
        self._change("deleted", True, at)

    def _change(self, name: str, value: object, at: datetime) -> None:
        if self._state.deleted:
            raise ContactDeleted(f"contact {self.id} was deleted: create a new one")
        self._set(name, _with_unknown_fields(getattr(self._state, name), value), at)

    def _stamps(self, changed: Collection[str], at: datetime) -> Mapping[str, Any]:
        return {"modified_at": at, "deleted_at": at if "deleted" in changed else None}


def _with_unknown_fields(stored: object, value: object) -> object:
    """Adds the stored fields of a later version to the value, which this version would otherwise lose."""
    if isinstance(stored, WireModel) and isinstance(value, WireModel) and type(stored) is type(value):
        return value.model_copy(update=stored.model_extra)
    return value
