"""A notice stands in the place of a discarded event: subscribers see no gap, and learn nothing of that event."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal
from uuid import UUID, uuid5

from pydantic import Field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.event import Timestamp, WireModel
from cosmos_outbox.outbox.feed import Document

_NAMESPACE = UUID("8a3ef6a4-6a4f-4a0c-9c44-0a2c8e1f5d10")


class EventDiscarded(WireModel):
    """An event that could not be sent was given up; its place in the order is taken, and nothing else changed."""

    schema_version: ClassVar[int] = 1

    id: UUID
    action: Literal["EventDiscarded"] = "EventDiscarded"
    sequence: int | None = Field(default=None, ge=1)
    """The place of the discarded event; None: it had none."""
    created_at: Timestamp
    aggregate_type: str
    aggregate_id: str
    discarded_event_id: UUID | None = None
    """None: the document was broken, and had no valid id."""


ACTION = EventDiscarded.__name__


@dataclass(frozen=True)
class Notice:
    """What subscribers get in place of a discarded event."""

    aggregate: AggregateKey
    discarded_event_id: str
    sequence: int | None
    """The discarded event's place; None: it had none."""
    created_at: datetime
    """The time of the discarding (UTC)."""

    @property
    def id(self) -> str:
        """The same for the same event: a discarding that is repeated gives no second notice."""
        return str(uuid5(_NAMESPACE, "/".join([*self.aggregate, self.discarded_event_id])))

    @property
    def event(self) -> EventDiscarded:
        """The event that subscribers get."""
        return EventDiscarded(
            id=UUID(self.id),
            sequence=self.sequence,
            created_at=self.created_at,
            aggregate_type=self.aggregate.type,
            aggregate_id=self.aggregate.id,
            discarded_event_id=_event_id(self.discarded_event_id),
        )

    @property
    def data(self) -> Document:
        """The event as subscribers get it."""
        return self.event.model_dump(mode="json", by_alias=True, exclude_none=True)


def _event_id(text: str) -> UUID | None:
    """An event's id. A broken document may have any id, and nothing personal goes out."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None
