"""Detects a broker that refuses everything for the same reason: the fault is then its own, and nothing is parked.

A single refused message is poison, and so is each of several while the broker accepts others, or if the reasons differ.
But if the broker has refused the events of several aggregates for one reason and accepted nothing since, most likely a
topic or a setting is wrong, and the events wait until it is repaired. "Since" covers the whole process: an event of any
partition, page or attempt that the broker accepts after an aggregate was first refused proves that the refusal is the
aggregate's own. Without such a proof a few equally broken documents would block their partition for ever, so while the
refusals last, one aggregate is parked each ``PATIENCE_SECONDS``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic

PATIENCE_SECONDS = 600.0
"""Long enough for an alert and a reaction; a partition with only poison advances by six aggregates an hour."""


@dataclass
class RefusedAlike:
    """Tracks the broker's refusals and acceptances in this process; times are those of the monotonic clock."""

    patience_seconds: float = PATIENCE_SECONDS
    _refused: dict[AggregateKey, tuple[float, float]] = field(default_factory=dict, repr=False)
    """The first and last refusal of each aggregate; removed if it is not tried for ``patience_seconds``."""
    _accepted_at: float = field(default=float("-inf"), repr=False)
    """The time when the broker last accepted an event."""
    _parked: tuple[AggregateKey, str] | None = field(default=None, repr=False)
    """The aggregate that was parked last without a proof, and the reason."""
    _waiting: tuple[float, float] | None = field(default=None, repr=False)
    """The begin of the waiting, and its last attempt."""

    def to_wait(self, refused: Mapping[AggregateKey, str], *, accepted: bool) -> Mapping[AggregateKey, str]:
        """Returns the aggregates that must not be parked now, each with a message for an operator.

        ``refused``: the broker's reasons in one attempt. ``accepted``: whether it accepted any event in that attempt.
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
        if now - last > self.patience_seconds:  # that of an earlier page, which another instance has now
            began = now
        self._waiting = began, now
        return now - began < self.patience_seconds

    def _message(self, reason: str) -> str:
        return (
            f"the broker refuses the events of several aggregates alike and accepts none: {reason}. Nothing is parked "
            "for that at first: correct the topic or the settings. Until the broker accepts an event, one of these "
            f"aggregates is parked each {self.patience_seconds / 60:.0f} minutes"
        )
