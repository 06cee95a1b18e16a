"""The events of a contact: each carries the new value, so a subscriber needs no earlier event and no call back."""

from typing import Literal
from uuid import UUID

from cosmos_outbox import DomainEvent, Timestamp
from domain.values import Company, ContactDetails, Name


class ContactEvent(DomainEvent, defer_build=True):
    """The fields of every event of a contact. Pydantic builds the class of an event with the first such event."""

    contact_id: UUID


class PublishedContact(ContactDetails):
    """A contact as subscribers see it: as callers of the API do, without the fields that only the store needs."""

    id: UUID
    created_at: Timestamp
    modified_at: Timestamp | None = None


class ContactCreatedEvent(ContactEvent):
    """A contact exists from now on; the event carries all of it."""

    action: Literal["ContactCreatedEvent"] = "ContactCreatedEvent"
    contact: PublishedContact


class ContactNameUpdatedEvent(ContactEvent):
    """The contact has another name."""

    action: Literal["ContactNameUpdatedEvent"] = "ContactNameUpdatedEvent"
    name: Name


class ContactEmailUpdatedEvent(ContactEvent):
    """The contact has another email address."""

    action: Literal["ContactEmailUpdatedEvent"] = "ContactEmailUpdatedEvent"
    email: str


class ContactDescriptionUpdatedEvent(ContactEvent):
    """The contact's description changed, or was removed."""

    action: Literal["ContactDescriptionUpdatedEvent"] = "ContactDescriptionUpdatedEvent"
    description: str | None


class ContactCompanyUpdatedEvent(ContactEvent):
    """The contact's company changed, or was removed."""

    action: Literal["ContactCompanyUpdatedEvent"] = "ContactCompanyUpdatedEvent"
    company: Company | None


class ContactDeletedEvent(ContactEvent):
    """The contact is gone for every reader; no later event of the contact follows."""

    action: Literal["ContactDeletedEvent"] = "ContactDeletedEvent"
    deleted_at: Timestamp
