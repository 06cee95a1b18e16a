"""A subscriber's copy of one aggregate: its state and the last event applied to it, in one document.

:class:`EntrySchema` describes how the state is stored as JSON, and by which texts lists find it, in whichever store.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)


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


DESCENDING = "-"


@dataclass(frozen=True)
class EntrySchema(Generic[M]):
    """The JSON form of a read model's entries, and the texts by which lists find them."""

    model: type[M]
    """The type of an entry's state."""
    search: Mapping[str, Callable[[M], str]]
    """The texts, by their names, that entries are searched by. Each is in every entry, since an entry without the text
    would be missing from a list that is sorted by it: an unknown text is empty."""
    sorted_by: Sequence[str]
    """The texts by which a list can be sorted, both ways: in Cosmos DB each needs a composite index with ``/id``."""
    version: int = 1
    """Raise it with every change of the model, of a text in ``search``, or of what either is made from: entries of
    another version are then read from their sources and written again."""

    def __post_init__(self) -> None:
        """Check that a list is sorted by texts that entries have. Raises ValueError."""
        if unknown := [name for name in self.sorted_by if name not in self.search]:
            raise ValueError(
                f"the form of {self.model.__name__} is sorted by {', '.join(unknown)}, which search= does not have: "
                f"there are {', '.join(self.search)}"
            )

    @property
    def orders(self) -> Sequence[str]:
        """The orders of a list: each of ``sorted_by``, and the same with ``-`` before it, for descending."""
        return [f"{sign}{name}" for name in self.sorted_by for sign in ("", DESCENDING)]

    def write(self, state: M) -> dict[str, Any]:
        """Returns the state as JSON."""
        return state.model_dump(mode="json", by_alias=True)

    def read(self, item: Mapping[str, Any]) -> M | None:
        """Returns the state in an item, of whichever version; None: it cannot be read, or there is none."""
        try:
            return self.model.model_validate(item.get("data"))
        except ValidationError:
            return None

    def is_of(self, item: Mapping[str, Any]) -> bool:
        """Whether the item was written in this form."""
        return bool(item.get("form") == self.version)

    def texts(self, state: M) -> Mapping[str, str]:
        """Returns the texts by which the state is found."""
        return {name: text(state) for name, text in self.search.items()}


@dataclass(frozen=True)
class Condition:
    """A condition that a listed entry must meet."""

    field: str
    """The name of a text in ``EntrySchema.search``."""
    text: str
    """In the stored form: fold its case, for example, in the same way."""
    beginning: bool = False
    """True: the stored text begins with this one. False: it equals this one."""


def time_or_none(text: str | None) -> datetime | None:
    """Returns a stored time."""
    return None if text is None else datetime.fromisoformat(text)


def text_or_none(time: datetime | None) -> str | None:
    """Returns a time as it is stored."""
    return None if time is None else time.isoformat()


def entry_document(form: EntrySchema[M], key: AggregateKey, entry: Entry[M], stamp: Stamp) -> dict[str, Any]:
    """Returns an entry's document, with the texts that lists search in ``search``; ``blockedSince`` is set later."""
    state = entry.state
    return {
        "id": key.id,
        "aggregateType": key.type,
        "lastSequence": entry.last_sequence,
        "lastEventId": entry.last_event_id,
        "healed": entry.healed,
        "form": form.version,
        "deleted": state is None,
        "data": None if state is None else form.write(state),
        "search": {} if state is None else form.texts(state),
        "appliedAt": stamp.at.isoformat(),
        "lateSeconds": None if stamp.late_seconds is None else round(stamp.late_seconds, 3),
        "blockedSince": None,
    }


def entry_of(form: EntrySchema[M], document: Mapping[str, Any], version: str) -> VersionedEntry[M]:
    """Returns the entry in a document; one of another form has no state (``other-form``)."""
    is_read = form.is_of(document) and not document["deleted"]
    state = form.read(document) if is_read else None
    other_form = state is None and not document["deleted"]
    entry = Entry(document["lastSequence"], document["lastEventId"], state, document["healed"], other_form)
    return VersionedEntry(entry, version, time_or_none(document["blockedSince"]))
