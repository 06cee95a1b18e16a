"""Where many aggregates fail in a row for one reason, the cause is probably not theirs: that is told, once.

Nothing is held back because of it. A subscriber that stopped there could not tell a hundred sick aggregates from all,
and would hold up the healthy ones, which setting aside is there to prevent (``docs/decisions/0017-inbox.md``).
"""

import logging
from dataclasses import dataclass, field

from inbox.event import AggregateKey

TELL_AT = 20
"""How many different aggregates in a row."""

_log = logging.getLogger(__name__)


@dataclass
class Streak:
    """The aggregates of which a message was set aside for the same reason, since an event was applied last."""

    reason: str = ""
    aggregates: set[AggregateKey] = field(default_factory=set)

    def applied(self) -> None:
        """An event was applied: not all fail."""
        self.aggregates.clear()

    def set_aside(self, aggregate: AggregateKey, reason: str) -> None:
        """A message was set aside. The set stays as small as it is when it is told."""
        if reason != self.reason:
            self.reason, self.aggregates = reason, set()
        if aggregate in self.aggregates or len(self.aggregates) == TELL_AT:
            return
        self.aggregates.add(aggregate)
        if len(self.aggregates) == TELL_AT:
            _log.error(
                "messages of %d aggregates in a row were set aside for one reason, and none was applied between them: "
                "%s. This is probably a bug that hits every event. Nothing is lost: the records are tried again. To "
                "leave the other messages in the broker until the bug is mended, stop the subscriber",
                TELL_AT,
                reason,
            )
