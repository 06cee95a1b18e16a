"""A subscriber's copy of one aggregate: what it holds, and the event up to which it holds it, in one document."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")


@dataclass(frozen=True)
class Entry(Generic[S]):
    """``state`` is the aggregate after the event ``last_sequence``; None: it was deleted, or is of another form."""

    last_sequence: int
    last_event_id: str | None
    """The event that made this state; None: the state was read from the source."""
    state: S | None
    healed: int = 0
    """How often the entry was put right from the source, because events alone did not lead here."""
    other_form: bool = False
    """The state was stored in another form, or cannot be read: nothing is built on it, it is read from the source."""

    @property
    def deleted(self) -> bool:
        """A deleted entry keeps id and sequence, so that a late event does not bring it back. It has every form."""
        return self.state is None and not self.other_form


@dataclass(frozen=True)
class VersionedEntry(Generic[S]):
    """An entry as it was read, and the version to name when it is replaced."""

    entry: Entry[S]
    version: str
    blocked_since: datetime | None = None
    """Since when the publisher is known to hold back events of the aggregate; a walk notes it."""


@dataclass(frozen=True)
class Found(Generic[S]):
    """An aggregate as its source has it. ``sequence`` is that of its newest event; ``state`` None: it was deleted."""

    sequence: int
    state: S | None
    changed_at: datetime | None = None
    """When the source was last written; None: not known."""


@dataclass(frozen=True)
class WalkPage(Generic[S]):
    """A page of all entries or sources, in no order, and where the next one begins; None: there is none."""

    items: Sequence[tuple[AggregateKey, S]]
    position: str | None


@dataclass(frozen=True)
class After(Generic[S]):
    """What a projection answers: the entry after the event."""

    state: S | None
    """None: the aggregate is deleted, and so is its entry."""


@dataclass(frozen=True)
class Stamp:
    """When an entry was written, and how long after the change that it shows; None: not known, as after healing."""

    at: datetime
    late_seconds: float | None


@dataclass(frozen=True)
class Listed(Generic[S]):
    """A living entry as a list shows it, and how far it can be trusted."""

    id: str
    """Of the aggregate."""
    state: S
    sequence: int
    """The newest event of the aggregate that the entry shows."""
    applied_at: datetime
    """When the entry was written (UTC)."""
    late_seconds: float | None
    """How long after the change the entry was written; None: the entry was read from the source itself."""
    blocked_since: datetime | None
    """Since when events of the aggregate are held back; None: they are not, as far as the last walk saw."""


@dataclass(frozen=True)
class ListedPage(Generic[S]):
    """A page of a read model's entries."""

    items: Sequence[Listed[S]]
    """Each with ``id``, ``state``, ``sequence``, ``applied_at``, ``late_seconds`` and ``blocked_since``."""
    continuation_token: str | None
    """Of the next page, for the same list alone; None: this page is the last."""
