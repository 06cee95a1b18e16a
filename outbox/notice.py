"""A notice stands in the place of a discarded event: subscribers see no gap, and learn nothing of that event."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from outbox.aggregate import AggregateKey

ACTION = "EventDiscarded"

_NAMESPACE = UUID("8a3ef6a4-6a4f-4a0c-9c44-0a2c8e1f5d10")


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
