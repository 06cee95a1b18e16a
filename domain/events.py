"""Domain events are facts: immutable, complete in themselves, and named on the wire as subscribers know them.

An event says what a property became, so a subscriber needs no earlier event and no call back to this service.
"""

from datetime import datetime
from typing import Literal
from uuid import UUID, uuid4

from pydantic import Field

from domain.values import Company, ContactState, Name, WireModel


class DomainEvent(WireModel):
    """What every event carries. ``sequence`` counts the contact's events from 1, without a gap."""

    id: UUID = Field(default_factory=uuid4)
    contact_id: UUID
    action: str
    sequence: int = Field(ge=1)
    created_at: datetime


class ContactCreatedEvent(DomainEvent):
    """A contact exists from now on; the event carries all of it."""

    action: Literal["ContactCreatedEvent"] = "ContactCreatedEvent"
    contact: ContactState


class ContactNameUpdatedEvent(DomainEvent):
    """The contact has another name."""

    action: Literal["ContactNameUpdatedEvent"] = "ContactNameUpdatedEvent"
    name: Name


class ContactEmailUpdatedEvent(DomainEvent):
    """The contact has another email address."""

    action: Literal["ContactEmailUpdatedEvent"] = "ContactEmailUpdatedEvent"
    email: str


class ContactDescriptionUpdatedEvent(DomainEvent):
    """The contact's description changed, or was removed."""

    action: Literal["ContactDescriptionUpdatedEvent"] = "ContactDescriptionUpdatedEvent"
    description: str | None


class ContactCompanyUpdatedEvent(DomainEvent):
    """Something about the contact's company changed, or the contact has none any more."""

    action: Literal["ContactCompanyUpdatedEvent"] = "ContactCompanyUpdatedEvent"
    company: Company | None


class ContactDeletedEvent(DomainEvent):
    """The contact is gone for every reader. It is the last event of its contact."""

    action: Literal["ContactDeletedEvent"] = "ContactDeletedEvent"
    deleted_at: datetime
