"""Records a subscriber's metrics. Without an OpenTelemetry SDK nothing is kept, and a call costs little.

Only the API is used here. No attribute names an aggregate, an event or a person, and each has few values.
``docs/operate/metrics.md`` lists the metrics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum

from opentelemetry.metrics import get_meter

AGES = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600, 21_600, 86_400, 432_000, 864_000)
"""The bucket bounds of the age histogram, in seconds: up to the 10 days that an event is kept by default."""


class Outcome(StrEnum):
    """The outcome of an event at a subscriber: the values of ``outbox.outcome``."""

    APPLIED = "applied"
    """The state includes it, or its effect was run; healed from the source included."""
    DUPLICATE = "duplicate"
    """Nothing was to be done: it was applied before, or its aggregate is deleted or gone."""
    SET_ASIDE = "set_aside"
    """Its record waits to be retried."""
    REFUSED = "refused"
    """It can never be applied, since it is no event or another event has its sequence; or an operator has to decide."""
    WAITING = "waiting"
    """It is redelivered later: the store, or the service that an effect calls, is unavailable."""


_meter = get_meter("inbox")
_events = _meter.create_counter("outbox.inbox.events", "{event}", "What became of events at a subscriber")
_healed = _meter.create_counter(
    "outbox.inbox.gaps_healed", "{gap}", "Entries put right from their source because events were missing"
)
_commit_to_applied = _meter.create_histogram(
    "outbox.commit_to_applied",
    "s",
    "From an event's time to the write that applied it",
    explicit_bucket_boundaries_advisory=AGES,
)
_subscription: ContextVar[str | None] = ContextVar("subscription", default=None)


@contextmanager
def of_subscription(name: str) -> Iterator[None]:
    """Attribute the outcomes inside the context to this subscription."""
    before = _subscription.set(name)
    try:
        yield
    finally:
        _subscription.reset(before)


def decided(outcome: Outcome) -> None:
    """Count the outcome of one event."""
    attributes = {"outbox.outcome": outcome.value}
    if (subscription := _subscription.get()) is not None:
        attributes["messaging.destination.subscription.name"] = subscription
    _events.add(1, attributes)


def applied(created_at: datetime, now: datetime) -> None:
    """Record the age of an event that was applied, not healed. An event whose time has no zone is left out."""
    if created_at.tzinfo is not None:
        _commit_to_applied.record(max(0.0, (now - created_at).total_seconds()))


def gap_healed() -> None:
    """Count a gap that was healed from the source."""
    _healed.add(1)
