"""What a subscriber remembers of effects, in memory: a marker and a mark change together, each at its version.

It cannot prove that a store writes both or none; ``tests/contract`` runs over this ledger and over the real one.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cosmos_outbox.inbox.effect import Mark, Marker, Seen
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.inbox.event import AggregateKey

_NO_PLACE = 2**63

Version = tuple[Marker, Mapping[str, Mark]]
"""A marker, and the marks beside it by the ids of their events."""


@dataclass
class MemoryLedger:
    """See :class:`cosmos_outbox.inbox.ledger.Ledger`."""

    versions: dict[AggregateKey, list[Version]] = field(default_factory=dict)
    """Every version of every aggregate."""
    writes: int = 0

    async def read(self, key: AggregateKey, event_id: str, *, fenced: bool) -> Seen:
        """The marker, and the mark of one event."""
        marker, marks = self.at(key)
        return Seen(marker, marks.get(event_id))

    async def write(self, key: AggregateKey, marker: Marker, mark: Mark) -> Seen:
        """Store both. Raises RecordChanged."""
        return self.store(key, marker, mark)

    async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
        """The marks that hold an event, by sequence, then those without one."""
        return self.held(key)

    async def aggregates(self) -> AsyncIterator[AggregateKey]:
        """The aggregates of which something waits."""
        for key in [*self.versions]:
            if self.at(key)[0].waiting:
                yield key

    def at(self, key: AggregateKey, lag: int = 0) -> Version:
        """The version of an aggregate that lies so many writes back."""
        versions = self.versions.get(key, [])
        return versions[-1 - lag] if len(versions) > lag else (Marker(), {})

    def held(self, key: AggregateKey) -> Sequence[Mark]:
        """As :meth:`waiting`."""
        marks = [mark for mark in self.at(key)[1].values() if mark.waits is not None]
        return sorted(marks, key=lambda mark: mark.sequence or _NO_PLACE)

    def store(self, key: AggregateKey, marker: Marker, mark: Mark) -> Seen:
        """As :meth:`write`. Raises RecordChanged."""
        before, marks = self.at(key)
        stored = marks.get(mark.event_id)
        if marker.version != before.version or mark.version != (stored.version if stored else None):
            raise RecordChanged("another version")
        self.writes += 1
        after, marked = replace(marker, version=str(self.writes)), replace(mark, version=str(self.writes))
        self.versions.setdefault(key, []).append((after, {**marks, mark.event_id: marked}))
        return Seen(after, marked)
