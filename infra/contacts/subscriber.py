"""A subscriber logs an event's id, action, aggregate and sequence, and never personal data."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from domain.contact import Contact
from outbox.aggregate import AggregateKey


class ReceivedEvent(BaseModel):
    """The part of an event's body that holds no personal data."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", hide_input_in_errors=True)

    id: str
    action: str
    sequence: int | None = None
    """None: the event is unsequenced."""


def received_event(body: bytes) -> ReceivedEvent:
    """The event in a message's body. Raises pydantic's ValidationError, without the body in its text."""
    return ReceivedEvent.model_validate_json(body)


def aggregate_of(properties: Mapping[str, Any]) -> AggregateKey:
    """The aggregate that a message is about, by its application properties: a topic carries the events of all types.

    A message that was sent before messages told their aggregate's type is a contact's. The id is read from here and
    not from the session, which some versions of the Python worker do not hand over.
    """
    aggregate_type = properties.get("aggregateType", Contact.aggregate_type)
    return AggregateKey(str(aggregate_type), str(properties.get("cloudEvents_subject", "")))
