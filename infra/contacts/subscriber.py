"""A subscriber logs an event's id, action, contact id and sequence, and never personal data."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ReceivedEvent(BaseModel):
    """The part of an event's body that holds no personal data."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", hide_input_in_errors=True)

    id: str
    contact_id: str
    action: str
    sequence: int


def received_event(body: bytes) -> ReceivedEvent:
    """The event in a message's body. Raises pydantic's ValidationError, without the body in its text."""
    return ReceivedEvent.model_validate_json(body)
