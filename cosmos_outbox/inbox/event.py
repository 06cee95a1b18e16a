"""An event as a subscriber needs it: its id, its aggregate, and its sequence there.

A notice takes the place of an event that an operator of the publisher has discarded. It has the sequence of that event,
so that subscribers see no gap, and holds nothing of what changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cosmos_outbox.kernel.aggregate_key import AggregateKey

NOTICE = "EventDiscarded"
"""The action of every notice."""


@dataclass(frozen=True)
class Event:
    """An event as a subscriber receives it. ``data`` holds personal data, and is not shown in logs."""

    id: str
    """The same in every delivery, and if the event is published again: the key of an effect."""
    aggregate: AggregateKey
    """Its ``type`` and ``id``."""
    action: str
    """The event's name, or that of a notice."""
    sequence: int | None
    """1, 2, 3 … without a gap for each aggregate; None: the publisher gave the event no number."""
    created_at: datetime
    """The time of the change; one without a zone, as other publishers may store it, is UTC."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    schema_version: int | None = None
    """The version of the event's schema, by which a subscriber reads ``data``; None: the message has none."""
    source: str = ""
    """The service that raised the event: with ``id`` it is globally unique. Empty: the message names none."""
    republished: bool = False
    """Whether an operator published it again."""

    def age(self, now: datetime) -> timedelta:
        """Returns the event's age; a time without a zone is UTC."""
        return now - utc(self.created_at)

    @property
    def is_notice(self) -> bool:
        """Whether the message replaces a discarded event."""
        return self.action == NOTICE


def utc(time: datetime) -> datetime:
    """Returns the time with its zone; one without a zone is UTC."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)
