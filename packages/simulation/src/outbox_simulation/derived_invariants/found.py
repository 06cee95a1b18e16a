"""Holds the records and documents of a finished run for the rules, without any conclusion."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.read_model import Projection
from cosmos_outbox.kernel.aggregate_key import AggregateKey

Document = Mapping[str, Any]


@dataclass(frozen=True)
class StoredEvent:
    """An event, as a transaction stored it."""

    id: str
    aggregate: AggregateKey
    sequence: int | None
    action: str
    cause: str
    """The correlation id of the request that raised it."""
    data: Document
    schema_version: int | None = None

    def message(self, source: str = "") -> Event:
        """Returns the event as a subscriber receives it."""
        at = datetime.fromisoformat(self.data["createdAt"])
        key, action, sequence = self.aggregate, self.action, self.sequence
        return Event(self.id, key, action, sequence, at, self.data, self.schema_version, source)


@dataclass(frozen=True)
class StoredChange:
    """One transaction: the aggregate's document, and the events."""

    document: Document | None
    """None: the transaction did not write the whole document."""
    events: Sequence[StoredEvent]
    reaction: str = ""
    """The name of the reaction whose record was in it."""


@dataclass(frozen=True)
class ReactionFound:
    """A reaction, as it is declared, and the outcomes in its final records."""

    name: str
    each: bool
    """Whether it takes messages in order, and leaves none out."""
    newest: bool
    wanted: Mapping[str, Sequence[tuple[AggregateKey, str]]]
    """By the id of each relevant event: the targets, each with the id of its record."""
    outcomes: Mapping[str, str]
    """By the record's id."""
    failures: Sequence[str] = ()
    """The events whose targets it cannot determine."""


@dataclass(frozen=True)
class TakenMessage:
    """A message that the topic has taken."""

    id: str
    aggregate: AggregateKey
    data: Document


@dataclass(frozen=True)
class ClientOutcome:
    """A request and its answer, as its client knows them."""

    cause: str
    about: str
    outcome: str
    """``acknowledged``, ``refused``: nothing was changed, or ``unknown``."""
    events: int | None = 0
    """The number of events it raised, if it was acknowledged; None: this answer does not show it."""
    keyed: str = ""
    """The operation with a key of which this is an attempt."""
    decided: bool = False
    """Whether the aggregate itself refuses it, which is a final answer."""


@dataclass(frozen=True)
class AggregateFound:
    """An aggregate's final document."""

    sequence: int | None
    """None: its document has none."""
    deleted: bool
    document: Document
    """The argument of a read model's ``state_of``."""


@dataclass(frozen=True)
class ReadModelFound:
    """A read model, as it is declared, and its final entries."""

    name: str
    aggregate_type: str
    state_of: Callable[[Document], Any]
    project: Projection[Any]
    read: Callable[[Document], Any]
    """Returns the state in an entry's document; None: it is of another schema."""
    sources: Mapping[str, AggregateFound]
    entries: Mapping[str, Document]
    """By the aggregate's id."""


@dataclass
class LeftBehind:
    """All records and documents of a run."""

    outcomes: list[ClientOutcome] = field(default_factory=list)
    changes: list[StoredChange] = field(default_factory=list)
    taken: list[TakenMessage] = field(default_factory=list)
    effects: dict[str, tuple[str, list[str], frozenset[str] | None]] = field(default_factory=dict)
    """By the effect's name: the type of its aggregates, the ids of the events it was asked for, and the names of those
    that have one; None: all."""
    in_order: bool = True
    """Whether the broker delivered each message, in order, so that the effects have to be in order too."""
    reactions: list[ReactionFound] = field(default_factory=list)
    read_models: list[ReadModelFound] = field(default_factory=list)
    aggregates: dict[AggregateKey, AggregateFound] = field(default_factory=dict)

    def events(self) -> dict[AggregateKey, list[StoredEvent]]:
        """The events of each aggregate, in the order in which they were stored."""
        events: defaultdict[AggregateKey, list[StoredEvent]] = defaultdict(list)
        for change in self.changes:
            for event in change.events:
                events[event.aggregate].append(event)
        return dict(events)
