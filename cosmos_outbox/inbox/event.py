"""What a subscriber needs to know of a message to put it in its place: which event of which aggregate, and where in it.

A notice takes the place of an event that an operator of the publisher has discarded. It has the sequence of that event,
so that subscribers see no gap, and tells nothing of what changed.
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
    """The same in every delivery, and when the event is published again: the key of an effect."""
    aggregate: AggregateKey
    """Its ``type`` and ``id``."""
    action: str
    """What happened: the event's name, or that of a notice."""
    sequence: int | None
    """1, 2, 3 … without a gap for each aggregate; None: the publisher gave the event no number."""
    created_at: datetime
    """When the change happened; it may name no zone, as others may have stored it, and is UTC then."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    schema_version: int | None = None
    """The version of the event's schema, by which a subscriber tells how to read ``data``; None: not told."""
    source: str = ""
    """The service that raised the event: with ``id`` it names the event everywhere. Empty: not told."""
    republished: bool = False
    """Whether it is published again, by an operator."""

    def age(self, now: datetime) -> timedelta:
        """How old the event is; a time that names no zone is taken for one of UTC."""
        return now - utc(self.created_at)

    @property
    def is_notice(self) -> bool:
        """Whether the message stands in the place of a discarded event."""
        return self.action == NOTICE


def utc(time: datetime) -> datetime:
    """The time, with its zone: one that names none is of UTC, whoever stored it."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)
