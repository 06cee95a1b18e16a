"""What a run left behind, for the rules to look at: nothing is concluded here."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cosmos_outbox.inbox.decision import Projection
from cosmos_outbox.inbox.event import Event
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
    """The request that raised it: its correlation id."""
    data: Document
    schema_version: int | None = None

    def message(self, source: str = "") -> Event:
        """As a subscriber receives it."""
        at = datetime.fromisoformat(self.data["createdAt"])
        key, action, sequence = self.aggregate, self.action, self.sequence
        return Event(self.id, key, action, sequence, at, self.data, self.schema_version, source)


@dataclass(frozen=True)
class StoredChange:
    """One transaction: what it stored of an aggregate, and the events."""

    document: Document | None
    """None: the aggregate's document was not in it as a whole."""
    events: Sequence[StoredEvent]
    reaction: str = ""
    """The name of the reaction whose record was in it."""


@dataclass(frozen=True)
class ReactionFound:
    """A reaction, as it is declared, and the outcomes that its records tell in the end."""

    name: str
    each: bool
    """It takes messages in order, and leaves none out."""
    newest: bool
    wanted: Mapping[str, Sequence[tuple[AggregateKey, str]]]
    """By the id of each event that is for it: the targets, each with the id of its record."""
    outcomes: Mapping[str, str]
    """By the record's id."""
    failures: Sequence[str] = ()
    """Events of which it cannot tell the targets."""


@dataclass(frozen=True)
class TakenMessage:
    """The topic has taken it."""

    id: str
    aggregate: AggregateKey
    data: Document


@dataclass(frozen=True)
class ToldOf:
    """A request, as whoever asked was told of it."""

    cause: str
    about: str
    outcome: str
    """``acknowledged``, ``refused``: nothing was changed, or ``unknown``."""
    events: int | None = 0
    """How many it raised, if it was acknowledged; None: this answer does not tell."""
    keyed: str = ""
    """The operation with a key that it is an attempt of."""
    decided: bool = False
    """The aggregate itself refuses it, which is an answer that stays."""


@dataclass(frozen=True)
class AggregateFound:
    """An aggregate's document, in the end."""

    sequence: int | None
    """None: its document tells none."""
    deleted: bool
    document: Document
    """What a read model's ``state_of`` gets."""


@dataclass(frozen=True)
class ReadModelFound:
    """A read model, as it is declared, and its entries in the end."""

    name: str
    aggregate_type: str
    state_of: Callable[[Document], Any]
    project: Projection[Any]
    read: Callable[[Document], Any]
    """The state in an entry's document; None: it is of another form."""
    sources: Mapping[str, AggregateFound]
    entries: Mapping[str, Document]
    """By the aggregate's id."""


@dataclass
class LeftBehind:
    """All of it."""

    told: list[ToldOf] = field(default_factory=list)
    changes: list[StoredChange] = field(default_factory=list)
    taken: list[TakenMessage] = field(default_factory=list)
    effects: dict[str, tuple[str, list[str], frozenset[str] | None]] = field(default_factory=dict)
    """By the effect's name: the type of its aggregates, the ids of the events it was asked for, and the names of those
    that have one; None: all."""
    in_order: bool = True
    """Whether the broker has delivered each message, in order, so that the effects have to be in order too."""
    reactions: list[ReactionFound] = field(default_factory=list)
    read_models: list[ReadModelFound] = field(default_factory=list)
    aggregates: dict[AggregateKey, AggregateFound] = field(default_factory=dict)

    def events(self) -> dict[AggregateKey, list[StoredEvent]]:
        """Of each aggregate, in the order in which they were stored."""
        events: defaultdict[AggregateKey, list[StoredEvent]] = defaultdict(list)
        for change in self.changes:
            for event in change.events:
                events[event.aggregate].append(event)
        return dict(events)
