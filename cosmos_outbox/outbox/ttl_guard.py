"""No event expires unforwarded in silence: when an event has used half of its TTL, the log says so."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.outbox.feed import FeedEvent, caused_by
from cosmos_outbox.outbox.once_a_minute import OnceAMinute

SHARE = 0.5
"""The share of its TTL that an event may use before it is forwarded. After that, an operator has to act."""

_log = logging.getLogger(__name__)


@dataclass
class TtlGuard:
    """Watches the age of events that are about to be forwarded; logs at most once a minute."""

    clock: Clock = utc_now
    saying: OnceAMinute = field(default_factory=OnceAMinute)

    def watch(self, events: Iterable[FeedEvent]) -> None:
        """Log an error when one of the events has used more than half of its TTL."""
        now = self.clock().timestamp()
        worst = max(events, key=lambda event: share_used(event, now), default=None)
        if worst is None or (share := share_used(worst, now)) < SHARE or not self.saying.due():
            return
        _log.error(
            "event %s of %s has used %.0f %% of its TTL and is not forwarded yet: at 100 %% the event is lost. "
            "Find out why the relay is late, and raise the TTL of new events to gain time%s",
            worst.id,
            worst.aggregate or "no aggregate",
            100 * share,
            caused_by(worst),
        )


def share_used(event: FeedEvent, now: float) -> float:
    """The share of its TTL that a stored event has used: 1 when it expires, 0 for an event that never expires."""
    if event.lifetime is None:
        return 0.0
    return (now - event.lifetime.written_at) / event.lifetime.ttl_seconds
