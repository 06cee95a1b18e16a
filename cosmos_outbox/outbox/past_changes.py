"""The past of one aggregate is told without a gap, from its newest event down: where one is missing, the past begins.

So nobody takes what is left for the whole: ``complete_from`` is 1 only where it reaches back to the creation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent

LOOKED_BACK = 50
"""How many events below a page are looked at for what a value was before."""


@dataclass(frozen=True)
class PastPage:
    """Some of an aggregate's events, the newest first, whose sequences have no gap."""

    events: Sequence[OutboxEvent]
    earlier: Sequence[OutboxEvent]
    """Those below, as far as they were looked at: what a value was before. Without a gap too."""
    complete_from: int
    """Of this sequence and of all that follow, this page and those before it tell."""
    continuation_token: str | None
    """Of the page below; None: there is none, or what is below is not kept any more."""


class PastChanges(Protocol):
    """What is still known of the changes of an aggregate that is its own partition."""

    async def page(self, key: AggregateKey, last: int, size: int, token: str | None) -> PastPage:
        """At most ``size`` events up to the sequence ``last``, or below the page that gave the token.

        Raises:
            UnknownContinuation: the token was not made by this service for this aggregate.
            Throttled, Unavailable, Misconfigured: not all that is kept can be read.
        """


def lowest_of_run(before: int, sequences: Collection[int]) -> int:
    """The lowest sequence to which these reach down from ``before`` without a gap; ``before``: not one."""
    lowest = before
    while lowest - 1 in sequences:
        lowest -= 1
    return lowest
