"""What a subscriber needs of its store and of the source of the events, so that it knows neither.

A read may be old: a replica that lags may answer. A read *behind a fence* misses nothing that was committed before the
call; an adapter gets it from a write's answer. Every call raises StoreAway when it was not answered.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from cosmos_outbox.inbox.entry import Entry, Found, Stamp, VersionedEntry, WalkPage
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")


class Entries(Protocol[S]):
    """The subscriber's own store: one entry an aggregate."""

    async def read(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """The entry; it may be old, and None is no proof."""

    async def newest(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """The entry, behind a fence."""

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> str:
        """Write all of an entry at once, over the version that was read (None: only if there is no entry).

        Returns the version that it has now.

        An earlier attempt whose answer was lost may have written the entry: that is EntryChanged as well.

        Raises:
            EntryChanged: the entry is at another version.
            Unstorable: the store will never take this entry.
        """

    async def remove(self, key: AggregateKey, *, over: str) -> None:
        """Remove an entry, as only a rebuild may. Raises EntryChanged when it is at another version."""

    async def page(self, position: str | None) -> WalkPage[VersionedEntry[S]]:
        """A page of the entries that are not deleted."""

    async def mark(self, key: AggregateKey, version: str, blocked_since: datetime | None) -> None:
        """Note in an entry since when it is blocked. Raises EntryChanged when it is at another version."""

    async def progress(self) -> tuple[Mapping[str, Any], str] | None:
        """What :meth:`save_progress` wrote last, and its version."""

    async def save_progress(self, document: Mapping[str, Any], *, over: str | None) -> str:
        """Write how far the walk over the entries is, as JSON; with its new version.

        Raises EntryChanged when it is at another version (None: only if there is none).
        """


class Source(Protocol[S]):
    """The aggregates as their owner has them, read as this subscriber's state."""

    async def read(self, key: AggregateKey) -> Found[S] | None:
        """The aggregate; it may be old, and None is no proof."""

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        """The aggregate, behind a fence; None: it is gone, or never was."""


class SourceList(Protocol[S]):
    """The aggregates as their owner lists them."""

    async def page(self, since: datetime | None, position: str | None) -> WalkPage[Found[S]]:
        """A page of the aggregates, deleted ones too; ``since``: those changed since then, by the store's clock."""
