"""An event goes to each destination that is for it; one that it is not for passes it over, and never parks it.

What a destination chooses by never changes in an event. So of each aggregate it gets a part of its events in their
order, and a page that comes again is the same part again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Unread


@dataclass(frozen=True)
class Destination:
    """Which events a destination is for."""

    name: str
    """Empty: the service's own transport, which is for all of them."""
    types: frozenset[str] | None = None
    """Of the aggregates; None: of all."""
    actions: frozenset[str] | None = None
    """None: all."""
    begin: datetime | None = None
    """What was raised earlier is not for it; None: it begins with what is stored."""

    def takes_of(self, aggregate_type: str) -> bool:
        """Whether events of such aggregates may be for it."""
        return self.types is None or aggregate_type in self.types

    def takes(self, event: FeedEvent) -> bool:
        """Whether the event is for it. What cannot be read is, unless what can be read of it says otherwise.

        A document that belongs to no aggregate can be sent to nobody: it is parked once, by the service's own.
        """
        if not self.name:
            return True
        if isinstance(event, Unread):
            return self.takes(event.event)
        if event.aggregate is None or not self.takes_of(event.aggregate.type):
            return False
        data = event.document.get("data")
        raw: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        action = event.action if isinstance(event, OutboxEvent) else raw.get("action")
        if self.actions is not None and isinstance(action, str) and action not in self.actions:
            return False
        return self.begin is None or not _is_before(event, self.begin)


def _is_before(event: FeedEvent, begin: datetime) -> bool:
    """By the event's own time; of what cannot be read, by that of the store."""
    if isinstance(event, OutboxEvent):
        return event.created_at < begin
    written = event.document.get("_ts")
    return isinstance(written, int | float) and written < begin.timestamp()


ALL = Destination("")
"""The service's own transport."""

_current: ContextVar[str] = ContextVar("destination", default=ALL.name)


@contextmanager
def working_for(of: Destination) -> Iterator[None]:
    """What is measured, traced and logged meanwhile, and in tasks that begin meanwhile, is told of this destination."""
    before = _current.set(of.name)
    try:
        yield
    finally:
        _current.reset(before)


def current() -> str:
    """The name of the destination that the running task works for; empty: of none, or of the service's own."""
    return _current.get()


def attributes() -> dict[str, str]:
    """What a measurement tells of it: nothing of the service's own transport."""
    return attributes_of(current())


def attributes_of(name: str) -> dict[str, str]:
    """The same of a destination by its name."""
    return {"outbox.destination": name} if name else {}
