"""A message becomes an event of a contact, or it is known why it never can: its reason holds no personal data."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from domain.contact import Contact
from inbox.errors import Unreadable
from inbox.event import AggregateKey, Event
from inbox.set_aside import Delivery

TYPE = Contact.aggregate_type


_Id = Annotated[str, Field(pattern=r"^[^/\\?#]{1,128}$")]
"""What can be the id of an item in the store."""


class _Subject(BaseModel):
    """The aggregate's id in a message's properties."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    subject: Annotated[_Id, Field(alias="cloudEvents_subject")]


class _Envelope(BaseModel):
    """The part of an event's body that every event has."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", hide_input_in_errors=True)

    id: Annotated[str, Field(min_length=1, max_length=128)]
    action: Annotated[str, Field(min_length=1, max_length=128)]
    sequence: Annotated[int | None, Field(strict=True, ge=1, lt=2**63)] = None
    created_at: datetime
    contact_id: _Id | None = None
    aggregate_id: _Id | None = None
    """What a notice has in place of the contact's id. Whether there is such a contact, the source knows."""


def read(delivery: Delivery) -> Event | None:
    """The event in a message. Raises Unreadable."""
    return received_event(delivery.body, delivery.properties)


def received_event(body: bytes, properties: Mapping[str, Any]) -> Event | None:
    """The event in a message; None: it is of an aggregate of another type, of which the topic may have some.

    A message that was sent before messages told their aggregate's type is a contact's. The contact's id is not read
    from the session, which some versions of the Python worker do not hand over. Raises Unreadable.
    """
    if properties.get("aggregateType", TYPE) != TYPE:
        return None
    try:
        data = from_json(body)
        envelope = _Envelope.model_validate(data)
        owner = envelope.contact_id or envelope.aggregate_id or _Subject.model_validate(properties).subject
    except ValidationError as problems:
        fields = ", ".join(
            sorted({str(each["loc"][0]) if each["loc"] else "body" for each in problems.errors()})
        )
        raise Unreadable(f"the message is no event of a contact: {fields} missing or wrong") from None
    except ValueError:
        raise Unreadable("the message is no event of a contact: it is no JSON") from None
    return Event(
        envelope.id,
        AggregateKey(TYPE, owner),
        envelope.action,
        envelope.sequence,
        envelope.created_at,
        data,
    )
