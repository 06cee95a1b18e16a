"""Where many aggregates fail for one cause and none is applied, the cause is not theirs: that is told, once.

A cause is the kind of an error and the place that raised it. The words of an error may name its aggregate.

Nothing is held back because of it. A subscriber that stopped there could not tell a hundred sick aggregates from all,
and would hold up the healthy ones, which setting aside is there to prevent
(``docs/internals/decisions/0017-inbox.md``).
"""

import logging
from dataclasses import dataclass, field

from cosmos_outbox.kernel.aggregate_key import AggregateKey

TELL_AT = 20
"""How many different aggregates, since an event was applied last."""

_log = logging.getLogger(__name__)


@dataclass
class Streak:
    """The aggregates of which a message was set aside, by the cause, since an event was applied last."""

    aggregates: dict[str, set[AggregateKey]] = field(default_factory=dict)

    def applied(self) -> None:
        """An event was applied: not all fail."""
        self.aggregates.clear()

    def set_aside(self, aggregate: AggregateKey, cause: str, reason: str) -> None:
        """A message was set aside. A set stays as small as it is when it is told; the code has so many places."""
        failed = self.aggregates.setdefault(cause, set())
        if aggregate in failed or len(failed) == TELL_AT:
            return
        failed.add(aggregate)
        if len(failed) == TELL_AT:
            _log.error(
                "messages of %d aggregates were set aside for one cause, and none was applied since the first: %s. "
                "This is probably a bug that hits every event. Nothing is lost: the records are tried again. To leave "
                "the other messages in the broker until the bug is mended, stop the subscriber",
                TELL_AT,
                reason,
            )
