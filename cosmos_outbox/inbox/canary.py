"""A canary's events come one after the other, so what is missing was lost; and each has its time, so it shows delays.

What was heard is kept beside the records, written only over the version that was read: neither a restart, nor another
process, nor a read that is old, hides a gap or makes one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from cosmos_outbox.inbox.errors import EntryChanged, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.clock import Clock, utc_now

REMEMBERED = timedelta(hours=1)
"""So long a lost event is told: an alert ends by itself."""

MOST_MISSING = 100
_ATTEMPTS = 8


@dataclass(frozen=True)
class Missing:
    """An event that did not come in its turn."""

    sequence: int
    since: datetime


@dataclass(frozen=True)
class Heard:
    """Up to which event of the canary all came, but for those that are missing."""

    last: int
    missing: Sequence[Missing] = ()

    @classmethod
    def after(cls, before: "Heard | None", sequence: int, now: datetime) -> "Heard":
        """With one more event. The first that ever comes begins: what was before it is not known.

        An event that comes late is not lost. A sequence that is far ahead, as after a restore of the subscriber alone,
        counts as ``MOST_MISSING``.
        """
        if before is None:
            return cls(sequence)
        kept = [
            each for each in before.missing if now - each.since < REMEMBERED and each.sequence != sequence
        ]
        gap = range(max(before.last + 1, sequence - MOST_MISSING), sequence)
        lost = [*kept, *(Missing(each, now) for each in gap)][-MOST_MISSING:]
        return replace(before, last=max(before.last, sequence), missing=tuple(lost))


class HeardStore(Protocol):
    """Where a subscriber keeps what it heard."""

    async def read(self) -> tuple[Heard, str] | None:
        """With its version; it may be old. Raises StoreAway."""

    async def write(self, heard: Heard, over: str | None) -> None:
        """Raises EntryChanged: it is at another version. Raises StoreAway."""


@dataclass(frozen=True)
class Listener:
    """Hears the canary."""

    store: HeardStore
    tell: Callable[[int, float | None], None]
    """Is told how many events are missing, and how long the event took; None: it came before."""
    clock: Clock = utc_now

    async def handle(self, event: Event) -> None:
        """Note an event. Raises StoreAway."""
        if event.sequence is None or event.republished:
            return
        for _ in range(_ATTEMPTS):
            now, found = self.clock(), await self.store.read()
            before = found[0] if found else None
            heard = Heard.after(before, event.sequence, now)
            if heard != before:
                try:
                    await self.store.write(heard, found[1] if found else None)
                except EntryChanged:
                    continue
            is_new = before is None or event.sequence > before.last
            self.tell(len(heard.missing), (now - event.created_at).total_seconds() if is_new else None)
            return
        raise StoreAway("others keep writing what was heard of the canary")
