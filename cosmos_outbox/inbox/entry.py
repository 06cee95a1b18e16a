"""A subscriber's copy of one aggregate: its state and the last event applied to it, in one document."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")


@dataclass(frozen=True)
class Entry(Generic[S]):
    """The aggregate after event ``last_sequence``; ``state`` None: it was deleted, or is of another form."""

    last_sequence: int
    last_event_id: str | None
    """The event that made this state; None: the state was read from the source."""
    state: S | None
    healed: int = 0
    """How often the entry was repaired from the source, because events alone did not lead here."""
    other_form: bool = False
    """The state was stored in another form, or cannot be read: no event is applied to it, the source is read."""

    @property
    def deleted(self) -> bool:
        """Whether it was deleted, in any form: it keeps id and sequence, so that a late event does not revive it."""
        return self.state is None and not self.other_form


@dataclass(frozen=True)
class VersionedEntry(Generic[S]):
    """An entry as it was read, and the version to name when it is replaced."""

    entry: Entry[S]
    version: str
    blocked_since: datetime | None = None
    """Since when the publisher has held back events of the aggregate, as far as a walk has seen."""


@dataclass(frozen=True)
class Found(Generic[S]):
    """An aggregate as its source has it. ``sequence``: of its newest event; ``state`` None: it was deleted."""

    sequence: int
    state: S | None
    changed_at: datetime | None = None
    """The time of the source's last write; None: not known."""


@dataclass(frozen=True)
class WalkPage(Generic[S]):
    """A page of all entries or sources, in no order. ``position``: of the next page; None: this is the last."""

    items: Sequence[tuple[AggregateKey, S]]
    position: str | None


@dataclass(frozen=True)
class After(Generic[S]):
    """The result of a projection: the entry after the event."""

    state: S | None
    """None: the aggregate is deleted, and so is its entry."""


@dataclass(frozen=True)
class Stamp:
    """The time of an entry's write, and its delay after the change; None: not known, as after healing."""

    at: datetime
    late_seconds: float | None


@dataclass(frozen=True)
class Listed(Generic[S]):
    """A living entry as a list shows it, with its age and whether it is blocked."""

    id: str
    """Of the aggregate."""
    state: S
    sequence: int
    """The newest event of the aggregate that the entry shows."""
    applied_at: datetime
    """The time of the entry's write (UTC)."""
    late_seconds: float | None
    """How long after the change the entry was written; None: the entry was read from the source itself."""
    blocked_since: datetime | None
    """Since when the publisher holds back events of the aggregate; None: it does not, as of the last walk."""


@dataclass(frozen=True)
class ListedPage(Generic[S]):
    """A page of a read model's entries."""

    items: Sequence[Listed[S]]
    """Each with ``id``, ``state``, ``sequence``, ``applied_at``, ``late_seconds`` and ``blocked_since``."""
    continuation_token: str | None
    """Of the next page of the same list; None: this page is the last."""
