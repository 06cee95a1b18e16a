"""Defines the outbox's metrics. Without an OpenTelemetry SDK nothing is recorded, and a call costs little.

Only the API is used here: the process chooses the SDK and its exporter. No attribute identifies an aggregate, an event
or a person, and each has few values. ``docs/operate/metrics.md`` lists the metrics.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from opentelemetry.metrics import CallbackOptions, Observation, get_meter

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent

AGES = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600, 21_600, 86_400, 432_000, 864_000)
"""The bounds of histograms of ages, in seconds: up to the 10 days that an event is kept by default."""

OFTEN, SELDOM = 90.0, 330.0
"""The seconds for which a value that is measured every minute, or every five, is reported: a little longer."""


class Why(StrEnum):
    """The reason why an event was parked: the values of ``outbox.reason``."""

    REFUSED = "refused"
    """The broker never accepts it."""
    FAILING = "failing"
    """Its receiver fails repeatedly; it is retried automatically."""
    INVALID = "invalid"
    """Its document is no valid event, or cannot be verified."""
    BEHIND = "behind"
    """It waits behind another event of its aggregate."""


_meter = get_meter("outbox")
_stored = _meter.create_counter("outbox.events.stored", "{event}", "Events that a transaction has stored")
_parked = _meter.create_counter("outbox.events.parked", "{event}", "Events that were parked")
_failed_rounds = _meter.create_counter(
    "outbox.relay.failed_rounds", "{round}", "Pages of the feed that could not be forwarded, each attempt"
)
_duplicates = _meter.create_counter(
    "outbox.events.duplicates", "{event}", "Events that the relay knew as accepted, and did not send again"
)
_commit_to_accepted = _meter.create_histogram(
    "outbox.commit_to_accepted",
    "s",
    "From an event's time to the broker's answer",
    explicit_bucket_boundaries_advisory=AGES,
)


@dataclass
class GaugeReading:
    """The newest value of a gauge, reported only while fresh: a process that no longer measures must stop reporting."""

    seconds: float
    """The time for which a value is reported."""
    _taken: tuple[float, float] | None = field(default=None, repr=False)

    def set(self, value: float) -> None:
        """Sets the current value."""
        self._taken = value, monotonic()

    def __call__(self, _: CallbackOptions) -> Iterable[Observation]:
        """Yields the value if it is fresh."""
        if self._taken is not None and monotonic() - self._taken[1] <= self.seconds:
            yield Observation(self._taken[0])


@dataclass
class LastSuccess:
    """The time when this process last forwarded a page of events."""

    _at: float | None = field(default=None, repr=False)

    def now(self) -> None:
        """Records that a page was forwarded."""
        self._at = monotonic()

    def __call__(self, _: CallbackOptions) -> Iterable[Observation]:
        """Yields the seconds since then; nothing before the first page."""
        if self._at is not None:
            yield Observation(monotonic() - self._at)


last_success = LastSuccess()
_parked_aggregates, _parked_oldest = GaugeReading(OFTEN), GaugeReading(OFTEN)
_meter.create_observable_gauge(
    "outbox.relay.since_success", [last_success], "s", "Since this process last forwarded a page"
)
_meter.create_observable_gauge(
    "outbox.parked.aggregates", [_parked_aggregates], "{aggregate}", "Aggregates that are parked"
)
_meter.create_observable_gauge(
    "outbox.parked.oldest", [_parked_oldest], "s", "The age of the oldest block of an aggregate"
)
_due, _due_oldest = GaugeReading(OFTEN), GaugeReading(OFTEN)
_meter.create_observable_gauge(
    "outbox.due.aggregates", [_due], "{aggregate}", "Aggregates that are due, and were not met"
)
_meter.create_observable_gauge(
    "outbox.due.oldest", [_due_oldest], "s", "For how long the oldest of them has been due"
)


def stored(events: Iterable[tuple[str, str]]) -> None:
    """Counts events that a transaction has stored, by the aggregate's type and the action of each."""
    for (aggregate_type, action), count in Counter(events).items():
        _stored.add(count, {"outbox.aggregate.type": aggregate_type, "outbox.event.type": action})


def accepted(events: Sequence[FeedEvent], now: datetime) -> None:
    """Records the age of accepted events. An event whose time has no zone has no age."""
    for event in events:
        if isinstance(event, OutboxEvent) and event.created_at.tzinfo is not None:
            _commit_to_accepted.record(max(0.0, (now - event.created_at).total_seconds()))


def duplicates(count: int) -> None:
    """Counts events of a page that were known to be accepted."""
    if count:
        _duplicates.add(count)


def parked(why: Why, count: int = 1) -> None:
    """Counts parked events."""
    if count:
        _parked.add(count, {"outbox.reason": why.value})


def round_failed(why: FailureReason) -> None:
    """Counts a page of the feed that could not be read or forwarded, and comes again."""
    _failed_rounds.add(1, {"outbox.reason": why.value})


def blocked(since: Sequence[datetime], now: datetime) -> None:
    """Reports the parked aggregates; ``since``: the begin of each block."""
    _parked_aggregates.set(len(since))
    _parked_oldest.set(max(0.0, (now - min(since)).total_seconds()) if since else 0.0)


def due(since: Sequence[datetime], now: datetime) -> None:
    """Reports the aggregates that a round has left due; ``since``: the deadline of each."""
    _due.set(len(since))
    _due_oldest.set(max(0.0, (now - min(since)).total_seconds()) if since else 0.0)
