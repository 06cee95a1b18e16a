"""The ports of a subscriber: its entries, and the source of the events.

A read may be old: a replica that lags may answer. A *consistent read* misses nothing that was committed before the
call; an adapter does it with the session token of a write. Every call raises StoreUnavailable if it is not answered.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn, Protocol, TypeVar

from cosmos_outbox.inbox.entry import Entry, Found, Stamp, VersionedEntry, WalkPage
from cosmos_outbox.inbox.errors import SourceBehind
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass

S = TypeVar("S")


class Entries(Protocol[S]):
    """The subscriber's own store: one entry per aggregate."""

    async def read(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """Returns the entry; it may be old, and None proves nothing."""

    async def newest(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """Returns the entry, with a consistent read."""

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> str:
        """Write a whole entry, over the version that was read (None: only if there is no entry).

        Returns the entry's new version.

        If an earlier attempt whose answer was lost has written the entry, that raises EntryChanged as well.

        Raises:
            EntryChanged: the entry is at another version.
            Unstorable: the store will never take this entry.
        """

    async def remove(self, key: AggregateKey, *, over: str) -> None:
        """Remove an entry; only a rebuild does. Raises EntryChanged if it is at another version."""

    async def page(self, position: str | None) -> WalkPage[VersionedEntry[S]]:
        """Returns a page of the entries that are not deleted."""

    async def mark(self, key: AggregateKey, version: str, blocked_since: datetime | None) -> None:
        """Store in an entry since when it is blocked. Raises EntryChanged if it is at another version."""

    async def progress(self) -> tuple[Mapping[str, Any], str] | None:
        """Returns the last document of :meth:`save_progress`, and its version."""

    async def save_progress(self, document: Mapping[str, Any], *, over: str | None) -> str:
        """Write the walk's progress as JSON, over a version (None: only if there is none); returns the new version.

        Raises EntryChanged if it is at another version.
        """


class Source(Protocol[S]):
    """Reads aggregates from their owner, as this subscriber's state."""

    async def read(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate; it may be old, and None proves nothing."""

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate, with a consistent read; None: it is gone, or never existed."""


class SourceList(Protocol[S]):
    """Lists the aggregates of their owner."""

    async def page(self, since: datetime | None, position: str | None) -> WalkPage[Callable[[], Found[S]]]:
        """A page of the aggregates, deleted ones too; ``since``: those changed since then, by the store's clock.

        Each is turned into the subscriber's state by its own call, so one that cannot be read fails alone.
        """


@dataclass(frozen=True)
class NoSource:
    """Declares that there is no source: an entry is made from an aggregate's first event, and from no other.

    What cannot be applied is set aside, and tried again until the publisher has published the missing events again. So
    the projection gives an answer to every action, the state as it is to one that it does not need; it gets the skip
    marker of a discarded event too, and decides whether to go on without that event. Deleted entries are kept for good.
    Raise the form's ``version`` only where the publisher can publish all events again: an entry of another form is made
    anew from the first event, and until then its events wait.

    See :class:`cosmos_outbox.inbox.ports.Source`: there is nothing to read, and so nothing is ever proven.
    """

    async def read(self, key: AggregateKey) -> None:
        """Returns None, which proves nothing."""

    async def newest(self, key: AggregateKey) -> NoReturn:
        """Raises SourceBehind."""
        raise SourceBehind(
            f"events of {key} are missing, and this subscriber has no source to read: ask the publisher to publish the "
            "events of that time again"
        )
