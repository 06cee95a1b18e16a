"""What became of an effect whose record the store has not taken: the process that ran it knows, and no other can.

It is kept for the message that comes again to the same process. Another process, or this one after a restart, finds
only that the effect was started.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cosmos_outbox.inbox.effect import EffectMarker, SeenMark
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey

MOST = 1_000
"""How many are kept; the oldest goes first. A process runs some dozen effects at a time."""

Record = Callable[[SeenMark], Awaitable[EffectMarker | None]]
"""Writes what became of an effect, over a marker and a mark that say that this process has started it."""


@dataclass
class Owed:
    """The records that a process owes the store."""

    _records: dict[tuple[AggregateKey, str], tuple[str, Record]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._records)

    def keep(self, event: Event, by: str, record: Record) -> None:
        """The call ``by`` has run the effect of an event."""
        self._records[event.aggregate, event.id] = by, record
        if len(self._records) > MOST:
            del self._records[next(iter(self._records))]

    def of(self, event: Event, seen: SeenMark) -> Record | None:
        """What is owed of an event whose mark still says that the call has started it; else it is owed no more."""
        by, record = self._records.get((event.aggregate, event.id), (None, None))
        if seen.mark is not None and seen.mark.is_started_by(by):
            return record
        self.forget(event)
        return None

    def forget(self, event: Event) -> None:
        """It is recorded, or somebody else answers for it."""
        self._records.pop((event.aggregate, event.id), None)
