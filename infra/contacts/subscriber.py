"""What a subscriber may log of an event: which, of which aggregate, in which place. Never a name or an address."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from domain.contact import Contact


class ReceivedEvent(BaseModel):
    """The part of an event's body that says what happened and in which place, and nothing about a person."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", hide_input_in_errors=True)

    id: str
    action: str
    sequence: int


def received_event(body: bytes) -> ReceivedEvent:
    """The event in a message's body. Raises pydantic's ValidationError, without the body in its text."""
    return ReceivedEvent.model_validate_json(body)


def aggregate_type(properties: Mapping[str, Any]) -> str:
    """What a message is about, by its application properties: the topic carries the events of every aggregate.

    A message that was sent before messages told their aggregate's type is a contact's.
    """
    return str(properties.get("aggregateType", Contact.aggregate_type))
