"""A broker that refuses everything in the same words has a fault of its own: then no document is parked for it.

One message that is refused is poison, and so is each of several while the broker takes others, or where the reasons
differ. But when the broker has refused the events of several aggregates alike and accepted nothing since, a topic or a
setting is wrong, most likely, and the events wait until it is mended. Nobody can tell that for certain from a few
documents that are poison in the same way and have no others beside them. They would hold up their partition for ever,
so while the refusals last, one aggregate is parked each ``PATIENCE_SECONDS``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic

PATIENCE_SECONDS = 600.0
"""Long enough for somebody to be told and to look; a partition of poison alone gets on by six aggregates an hour."""


@dataclass
class RefusedAlike:
    """What the broker has refused since it last accepted an event, as far as this process knows."""

    patience_seconds: float = PATIENCE_SECONDS
    _reason: str | None = field(default=None, repr=False)
    _parked: AggregateKey | None = field(default=None, repr=False)
    """The aggregate that was parked last for this reason."""
    _waiting: tuple[float, float] | None = field(default=None, repr=False)
    """When the waiting began, and its last attempt."""

    def to_wait(self, refused: Mapping[AggregateKey, str], *, accepted: bool) -> Mapping[AggregateKey, str]:
        """The aggregates that are not to be parked now, each with what to tell an operator.

        ``refused``: the broker's reasons in one attempt. ``accepted``: whether it took any event in that attempt.
        """
        reasons = set(refused.values())
        if accepted or len(reasons) > 1:
            self._begin_anew(None)
            return {}
        if not refused:
            return {}
        [reason] = reasons
        if reason != self._reason:
            self._begin_anew(reason)
        first = next(iter(refused))
        if len({*refused, self._parked or first}) > 1 and self._waits():
            return dict.fromkeys(refused, self._told(reason))
        self._parked, self._waiting = first, None
        return {key: self._told(reason) for key in refused if key != first}

    def _begin_anew(self, reason: str | None) -> None:
        self._reason, self._parked, self._waiting = reason, None, None

    def _waits(self) -> bool:
        now = monotonic()
        began, last = self._waiting or (now, now)
        if now - last > self.patience_seconds:  # an earlier page, which has gone elsewhere
            began = now
        self._waiting = began, now
        return now - began < self.patience_seconds

    def _told(self, reason: str) -> str:
        return (
            f"the broker refuses the events of several aggregates alike and accepts none: {reason}. Nothing is parked "
            "for that at first: correct the topic or the settings. Until the broker accepts an event, one of these "
            f"aggregates is parked each {self.patience_seconds / 60:.0f} minutes"
        )
