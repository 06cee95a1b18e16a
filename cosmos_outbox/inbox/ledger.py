"""What effect mode needs of a store: a marker and the marks of one aggregate change in one transaction.

A read may be old: a replica that lags may answer. A read *behind a fence* misses nothing that was committed before the
call. Every call raises StoreAway when it was not answered.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from cosmos_outbox.inbox.effect import EffectMarker, Mark, SeenMark
from cosmos_outbox.kernel.aggregate_key import AggregateKey


class Ledger(Protocol):
    """The markers and marks of one subscriber."""

    async def read(self, key: AggregateKey, event_id: str, *, fenced: bool) -> SeenMark:
        """An aggregate's marker, and the mark of one event. Unless fenced, each may be old, and its absence too."""

    async def write(self, key: AggregateKey, marker: EffectMarker, mark: Mark) -> SeenMark:
        """Store both, each over its version (None: only if there is none). Returns them with their new versions.

        An earlier attempt whose answer was lost may have stored them: that is RecordChanged as well.

        Raises:
            RecordChanged: one of them is at another version.
            Unstorable: the store will never take them.
        """

    async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
        """The first marks that hold an event, by sequence, then those without one. Behind a fence."""

    def aggregates(self) -> AsyncIterator[AggregateKey]:
        """The aggregates of which something waits; the one that was written last comes last. It may be old."""
