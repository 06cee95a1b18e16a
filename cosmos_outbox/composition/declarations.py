"""Holds what a service subscribes to and keeps it in, as it is declared and checked: data alone, until it is wired."""

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.entry import EntrySchema
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.settings.names import Named

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
    from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder, React
    from cosmos_outbox.cosmos.inbox.reactions import Targets
    from cosmos_outbox.inbox.effect import Effect, EffectRecords
    from cosmos_outbox.inbox.ports import Entries, NoSource
    from cosmos_outbox.inbox.read_model import First, Projection
    from cosmos_outbox.inbox.retrier import Retries
    from cosmos_outbox.inbox.set_aside import SetAside
    from cosmos_outbox.lists.listing import Listing
    from cosmos_outbox.sources.http import HttpApi

On = Collection[type[DomainEvent] | str] | None
"""Events, by class or by name; None: all."""

S = TypeVar("S", bound=BaseModel)
A = TypeVar("A", bound=Aggregate[Any])


class Store(Protocol):
    """The store of a subscriber's entries, of what it set aside, and of what is known of its effects."""

    def entries(self, name: str, form: EntrySchema[S], deleted_ttl_seconds: int | None) -> "Entries[S]":
        """Returns the entries of one read model; None: deleted ones are kept for good. Raises Misconfigured."""

    def listing(self, name: str, form: EntrySchema[S]) -> "Listing[S]":
        """Returns the list of one read model."""

    def set_aside(self, subscription: str, closed_ttl_seconds: int) -> "SetAside":
        """Returns what one subscription has set aside."""

    def effects(self, name: str, subscription: str, ttl_seconds: int) -> "EffectRecords":
        """Returns the records of one subscriber's effects. Raises Misconfigured."""

    async def check(self) -> None:
        """Returns if it answers. Raises the errors of the inbox, or of the outbox, when it does not."""


class StoreOf(Protocol):
    """A store as it is declared."""

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> Store:
        """Returns the store. Opens no connection; ``resources`` closes it. Raises Misconfigured."""


@dataclass(frozen=True)
class ReadModelDeclaration(Generic[S]):
    """A read model as it is declared: one entry an aggregate, kept from the events, in order, each applied once."""

    name: str
    aggregate_type: str
    subscription: Named
    container: Named
    """The name of the entries' container."""
    form: EntrySchema[S]
    project: "Projection[S]"
    untyped: bool
    state_of: Callable[[Mapping[str, Any]], S]
    """The entry's state of an aggregate as the source has it."""
    has_source: bool = True
    """Whether an entry can be repaired from the publisher's own state."""
    first: "First[S] | None" = None
    """The entry's state of an aggregate's first event; None: the aggregate itself is read."""
    documents: "SourceDocuments | None" = None
    """Of the aggregates, in a container of the team's own; None: they are the library's."""
    source: "HttpApi | NoSource | None" = None
    """The place where another team's aggregates are read; None: they are the service's own."""


@dataclass(frozen=True)
class EffectDeclaration:
    """An effect as it is declared: something outside the store, asked for at least once, with the event's id as key."""

    name: str
    aggregate_type: str
    subscription: Named
    container: Named
    """The name of the container of the events' records."""
    run: "Effect"
    """The function that is run for each event."""
    kinds: frozenset[str] | None
    """The events that have an effect, by name; None: all."""
    repeatable: bool
    begin: datetime | None
    untyped: bool
    retries: "Retries | None"
    form: None = None


@dataclass(frozen=True)
class ReactionDeclaration(Generic[A]):
    """A reaction as it is declared: a message changes aggregates of this service, and raises their events, once."""

    name: str
    aggregate_type: str
    """The type of the messages' aggregates."""
    to: type[A]
    subscription: Named
    topic: Named | None
    """The topic of another team; None: the service's own."""
    targets: "Targets"
    react: "React[A]"
    order: "InOrder"
    untyped: bool
    container: None = None
    """Its records are beside its targets."""
    form: None = None


Subscriber = ReadModelDeclaration[Any] | EffectDeclaration | ReactionDeclaration[Any]


def checked_call(what: str, call: Callable[..., Any], *takes: str, awaited: bool = False) -> None:
    """Check the form of a function that a declaration is given. Raises ValueError, which names its file and line.

    ``takes``: what the library calls it with.
    """
    written = inspect.unwrap(getattr(call, "func", call))
    code = getattr(written, "__code__", None)
    where = f"{what} ({code.co_filename}:{code.co_firstlineno})" if code else what
    is_awaited = any(map(inspect.iscoroutinefunction, (call, getattr(call, "__call__", None))))  # noqa: B004
    if awaited and not is_awaited:
        raise ValueError(f"{where} is awaited: write it with async def")
    if is_awaited and not awaited:
        raise ValueError(
            f"{where} is called without await, perhaps more than once, and does no I/O: write it with def"
        )
    try:
        inspect.signature(call).bind(*takes)
    except TypeError:
        raise ValueError(f"{where} is called with ({', '.join(takes)}): let it take these") from None


def names_of_events(on: On, known: Collection[str], what: str) -> frozenset[str] | None:
    """Returns the names of the events in ``on``; None: all. Raises ValueError for one that is not ``known``.

    Nothing is known of another team's events.
    """
    if on is None:
        return None
    if isinstance(on, str) or not on:
        raise ValueError(
            f"{what}: on is {on!r}: give a list of events, by class or name, or leave it out for all"
        )
    names = frozenset(each if isinstance(each, str) else each.__name__ for each in on)
    if known and (unknown := sorted(names - {*known})):
        raise ValueError(
            f"{what}: on names {', '.join(unknown)}, and no such event is declared: there are "
            f"{', '.join(sorted(known))}. One that is raised by hand is named in Service(events=...)"
        )
    return names
