"""What a subscriber may log of an event: which, of which contact, in which place. Never a name or an address."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ReceivedEvent(BaseModel):
    """The part of an event's body that says what happened to whom, and nothing of what it says about them."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", hide_input_in_errors=True)

    id: str
    contact_id: str
    action: str
    sequence: int


def received_event(body: bytes) -> ReceivedEvent:
    """The event in a message's body. Raises pydantic's ValidationError, without the body in its text."""
    return ReceivedEvent.model_validate_json(body)
