"""An entry that this process wrote is remembered for one thing: the next event is written over that very version.

What is remembered may be old, as a read may be. So it leads to a write, which its version guards, or to a read, and to
nothing else (``remembered-for-a-write``): a gap that it shows may be closed by now.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cosmos_outbox.inbox.entry import Entry, VersionedEntry
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")

MOST = 1_000
"""So many entries, those that were written last."""


@dataclass
class Remembered(Generic[S]):
    """The entries that were written last, by their aggregates."""

    _entries: dict[AggregateKey, VersionedEntry[S]] = field(default_factory=dict, repr=False)

    def note(self, key: AggregateKey, entry: Entry[S], version: str) -> None:
        """It was written, and is at this version now."""
        self._entries[key] = VersionedEntry(entry, version)
        if len(self._entries) > MOST:
            del self._entries[next(iter(self._entries))]

    def take(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """What was written last; it is forgotten with that."""
        return self._entries.pop(key, None)
