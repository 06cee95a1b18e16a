"""Gauges of the relay and of a subscriber's records, set by a timer or a worker that has read the store."""

from dataclasses import dataclass, field

from opentelemetry.metrics import get_meter

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.telemetry import OFTEN, SELDOM, GaugeReading

_backlog, _oldest_waiting, _ttl_used = GaugeReading(SELDOM), GaugeReading(SELDOM), GaugeReading(SELDOM)
_average_waiting = GaugeReading(SELDOM)


@dataclass
class _OfSubscriptions:
    """The number and the oldest of waiting messages, over the subscriptions whose values are fresh."""

    number: GaugeReading = field(default_factory=lambda: GaugeReading(OFTEN))
    oldest: GaugeReading = field(default_factory=lambda: GaugeReading(OFTEN))
    _read: dict[str, tuple[int, float, float]] = field(default_factory=dict, repr=False)
    """The number, the oldest and the time of the read, one for each subscriber of the process."""

    def set(self, subscription: str, number: int, oldest_seconds: float) -> None:
        now = monotonic()
        self._read[subscription] = number, oldest_seconds, now
        fresh = [each for each in self._read.values() if now - each[2] <= 2 * OFTEN]  # a run may take long
        self.number.set(sum(each for each, _, _ in fresh))
        self.oldest.set(max(oldest for _, oldest, _ in fresh))


_set_aside = _OfSubscriptions()

_meter = get_meter("outbox.upkeep")
_meter.create_observable_gauge(
    "outbox.relay.backlog", [_backlog], "{transaction}", "Transactions that are not forwarded"
)
_meter.create_observable_gauge(
    "outbox.relay.oldest_waiting",
    [_oldest_waiting],
    "s",
    "The age of the oldest change that is not forwarded",
)
_meter.create_observable_gauge(
    "outbox.relay.average_waiting",
    [_average_waiting],
    "s",
    "The average age of the transactions that are not forwarded",
)
_meter.create_observable_gauge(
    "outbox.relay.ttl_used", [_ttl_used], "1", "The share of its TTL that the oldest waiting change has used"
)
_meter.create_observable_gauge(
    "outbox.set_aside.messages", [_set_aside.number], "{message}", "Messages that are set aside"
)
_meter.create_observable_gauge(
    "outbox.set_aside.oldest", [_set_aside.oldest], "s", "The age of the oldest message that is set aside"
)


def relay(
    backlog: int, oldest_waiting_seconds: float, average_waiting_seconds: float, ttl_used: float
) -> None:
    """Set the relay's gauges, over all leases. ``ttl_used``: 1 if a lease is missing, since it is then unknown."""
    _backlog.set(backlog)
    _oldest_waiting.set(oldest_waiting_seconds)
    _average_waiting.set(average_waiting_seconds)
    _ttl_used.set(ttl_used)


def set_aside(subscription: str, messages: int, oldest_seconds: float) -> None:
    """Set the number of one subscription's messages that are set aside, and the age of the oldest; 0 if there is none.

    A process may have several subscriptions: the gauges show the sum and the oldest of those whose values are fresh.
    """
    _set_aside.set(subscription, messages, oldest_seconds)
