"""Domain events are facts: immutable, complete in themselves, and named on the wire as subscribers know them.

Names are snake_case in Python and camelCase on the wire. An unknown field is kept: a later version of the service has
stored it. Where a caller's input is read, unknown fields are refused (``extra="forbid"`` of pydantic's validation).
"""

from datetime import UTC, datetime
from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from cosmos_outbox.kernel.clock import new_id

CAUSE = frozenset({"correlationId", "traceparent", "tracestate", "causationId", "causedBy"})
"""The names in an event's data that tell what caused it; no model of an event has them."""

ENVELOPE = frozenset({"id", "action", "sequence", "createdAt"}) | CAUSE
"""What the outbox itself fills of an event's data."""


def _text(at: datetime) -> str:
    """UTC, and no zero at the end of the fraction: the one form that every JSON library writes as it was read."""
    text = at.astimezone(UTC).isoformat().removesuffix("+00:00")
    return (text.rstrip("0") if "." in text else text) + "Z"


Timestamp = Annotated[
    datetime,
    PlainSerializer(_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
"""A time in an event or a state. The change feed's host rewrites other forms (``docs/internals/decisions/0015``)."""


class WireModel(BaseModel):
    """Immutable; reads and writes camelCase; keeps unknown fields; shows no input in its errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


class DomainEvent(WireModel):
    """The fields of every event. A subclass adds what changed, and the aggregate's id for subscribers.

    An event carries the new values, so that a subscriber needs no earlier event and no call to the service.
    """

    schema_version: ClassVar[int] = 1
    """The version of the event's schema: raised by a change that a subscriber of the version before cannot read."""

    id: UUID = Field(default_factory=new_id)
    action: str
    """The name of what happened, for the filters of subscribers. A subclass fixes the action to the class's name."""
    sequence: int = Field(ge=1)
    """The event's place among all events of its aggregate: 1, 2, 3 … without a gap."""
    created_at: Timestamp
    """When the change happened (UTC)."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Raises TypeError: what tells the cause would take the place of a field."""
        if taken := sorted(CAUSE & {each.alias for each in cls.model_fields.values()}):
            raise TypeError(
                f"{cls.__name__}: the outbox itself fills {', '.join(taken)} of an event: take other names"
            )
