"""In-memory adapters of the inbox's ports, with the failures of real ones: old reads, lost answers, death at any call.

They cannot prove atomicity under a crash or the limits of a real store; the contract suite runs over the real ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from inbox.entry import After, Entry, Found, Stamp, VersionedEntry
from inbox.errors import EntryChanged
from inbox.event import NOTICE, AggregateKey, Event

S = TypeVar("S")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Faults:
    """Raises an error at chosen calls, counted over all ports that share it, before or after the call's effect."""

    at: Mapping[int, tuple[type[Exception], bool]] = field(default_factory=dict)
    calls: int = 0

    def run(self, effect: Callable[[], Any]) -> Any:
        number, self.calls = self.calls, self.calls + 1
        error, after = self.at.get(number, (None, False))
        if error is not None and not after:
            raise error("on purpose")
        result = effect()
        if error is not None:
            raise error("on purpose")
        return result


@dataclass
class FakeEntries(Generic[S]):
    """Every version of every entry; ``lag``: how many versions a read that is not behind a fence is behind."""

    faults: Faults = field(default_factory=Faults)
    lag: int = 0
    written: dict[AggregateKey, list[Entry[S]]] = field(default_factory=dict)
    stamps: dict[AggregateKey, Stamp] = field(default_factory=dict)

    def of(self, key: AggregateKey) -> Entry[S] | None:
        return self.written[key][-1] if key in self.written else None

    async def read(self, key: AggregateKey) -> VersionedEntry[S] | None:
        found: VersionedEntry[S] | None = self.faults.run(lambda: self._at(key, self.lag))
        return found

    async def newest(self, key: AggregateKey) -> VersionedEntry[S] | None:
        found: VersionedEntry[S] | None = self.faults.run(lambda: self._at(key, 0))
        return found

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> None:
        def write() -> None:
            versions = self.written.get(key, [])
            if (str(len(versions)) if versions else None) != over:
                raise EntryChanged("another version")
            self.written[key] = [*versions, entry]
            self.stamps[key] = stamp

        self.faults.run(write)

    def _at(self, key: AggregateKey, lag: int) -> VersionedEntry[S] | None:
        versions = self.written.get(key, [])
        seen = len(versions) - lag
        return VersionedEntry(versions[seen - 1], str(seen)) if seen > 0 else None


@dataclass
class FakeSource(Generic[S]):
    """Every version of every aggregate; ``lag`` as of :class:`FakeEntries`."""

    faults: Faults = field(default_factory=Faults)
    lag: int = 0
    changes: dict[AggregateKey, list[Found[S] | None]] = field(default_factory=dict)
    reads: int = 0
    fences: int = 0

    def change(self, key: AggregateKey, found: Found[S] | None) -> None:
        """``found`` None: the aggregate is gone."""
        self.changes.setdefault(key, []).append(found)

    async def read(self, key: AggregateKey) -> Found[S] | None:
        self.reads += 1
        found: Found[S] | None = self.faults.run(lambda: self._at(key, self.lag))
        return found

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        self.fences += 1
        found: Found[S] | None = self.faults.run(lambda: self._at(key, 0))
        return found

    def _at(self, key: AggregateKey, lag: int) -> Found[S] | None:
        changes = self.changes.get(key, [])
        return changes[len(changes) - lag - 1] if len(changes) > lag else None


KEY = AggregateKey("thing", "7")


def event(
    sequence: int | None, *, action: str = "Changed", key: AggregateKey = KEY, event_id: str = ""
) -> Event:
    """An event that adds its sequence to the state."""
    return Event(event_id or f"{key.id}/{sequence}/{action}", key, action, sequence, NOON, {"adds": sequence})


def notice(sequence: int) -> Event:
    return event(sequence, action=NOTICE)


def project(state: tuple[int, ...], received: Event) -> After[tuple[int, ...]] | None:
    """Knows three actions. Broken raises, as a bug does."""
    match received.action:
        case "Changed":
            return After((*state, int(received.data["adds"])))
        case "Deleted":
            return After(None)
        case "Broken":
            raise ZeroDivisionError("a bug in the projection")
    return None
