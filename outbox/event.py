"""Domain events are facts: immutable, complete in themselves, and named on the wire as subscribers know them.

Names are snake_case in Python and camelCase on the wire; a field that is not known is refused.
"""

from datetime import datetime
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    """Immutable; reads and writes camelCase; refuses unknown fields; shows no input in its errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


class DomainEvent(WireModel):
    """What every event carries. A subclass adds what happened, and its aggregate's id for subscribers to read.

    An event says what became of its aggregate, so that a subscriber needs no earlier event and no call back.
    """

    id: UUID = Field(default_factory=uuid4)
    action: str
    """What happened, as subscribers filter by it: a subclass fixes it to its own name."""
    sequence: int = Field(ge=1)
    """The event's place among all events of its aggregate: 1, 2, 3 … without a gap."""
    created_at: datetime
    """When it happened (UTC)."""
