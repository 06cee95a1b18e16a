"""A broker that refuses everything in the same words has a fault of its own: then no document is parked for it.

One message that is refused is poison, and so is each of several while the broker takes others, or where the reasons
differ. But when the broker has refused the events of several aggregates alike and accepted nothing since, a topic or a
setting is wrong, most likely, and the events wait until it is mended. "Since" counts for the whole process: an event of
any partition, page or attempt that the broker accepts after an aggregate was first refused proves that the refusal is
the aggregate's own. Without such a proof a few documents that are poison in the same way would hold up their partition
for ever, so while the refusals last, one aggregate is parked each ``PATIENCE_SECONDS``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic

PATIENCE_SECONDS = 600.0
"""Long enough for an alert and a look; a partition of poison alone gets on by six aggregates an hour."""


@dataclass
class RefusedAlike:
    """What the broker refuses and accepts, as far as this process knows; times are those of the monotonic clock."""

    patience_seconds: float = PATIENCE_SECONDS
    _refused: dict[AggregateKey, tuple[float, float]] = field(default_factory=dict, repr=False)
    """When an aggregate was first and last refused. Forgotten when it is not tried for ``patience_seconds``."""
    _accepted_at: float = field(default=float("-inf"), repr=False)
    """When the broker last accepted an event."""
    _parked: tuple[AggregateKey, str] | None = field(default=None, repr=False)
    """The aggregate that was parked last without a proof, and the reason."""
    _waiting: tuple[float, float] | None = field(default=None, repr=False)
    """When the waiting began, and its last attempt."""

    def to_wait(self, refused: Mapping[AggregateKey, str], *, accepted: bool) -> Mapping[AggregateKey, str]:
        """The aggregates that are not to be parked now, each with a message for an operator.

        ``refused``: the broker's reasons in one attempt. ``accepted``: whether it took any event in that attempt.
        """
        now = monotonic()
        if accepted:
            self._accepted_at, self._parked, self._waiting = now, None, None
        self._note(refused, now)
        unproven = {
            key: reason for key, reason in refused.items() if self._accepted_at < self._refused[key][0]
        }
        reasons = set(unproven.values())
        if len(reasons) != 1:
            return {}
        [reason] = reasons
        first = next(iter(unproven))
        parked_alike = {self._parked[0]} if self._parked and self._parked[1] == reason else set()
        if len({*unproven, *parked_alike}) > 1 and self._waits(now):
            return dict.fromkeys(unproven, self._message(reason))
        self._parked, self._waiting = (first, reason), None
        return {key: self._message(reason) for key in unproven if key != first}

    def _note(self, refused: Mapping[AggregateKey, str], now: float) -> None:
        self._refused = {
            key: (first, last)
            for key, (first, last) in self._refused.items()
            if now - last <= self.patience_seconds
        }
        for key in refused:
            first, _ = self._refused.get(key, (now, now))
            self._refused[key] = first, now

    def _waits(self, now: float) -> bool:
        began, last = self._waiting or (now, now)
        if now - last > self.patience_seconds:  # an earlier page, which has gone elsewhere
            began = now
        self._waiting = began, now
        return now - began < self.patience_seconds

    def _message(self, reason: str) -> str:
        return (
            f"the broker refuses the events of several aggregates alike and accepts none: {reason}. Nothing is parked "
            "for that at first: correct the topic or the settings. Until the broker accepts an event, one of these "
            f"aggregates is parked each {self.patience_seconds / 60:.0f} minutes"
        )
