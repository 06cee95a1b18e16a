"""A read model, wired: one entry an aggregate, kept from the events, healed and swept from the service's own documents.

Whatever the aggregate: a service says in :class:`ReadModelOf` what its entries are, and how an event changes one.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from inbox.decision import Projection
from inbox.event import AggregateKey
from inbox.receiver import LONGEST_CALL_SECONDS
from inbox.state import StateInbox
from inbox.sweep import Sweep
from infra.cosmos.entries import CosmosEntries, EntryForm
from infra.cosmos.listing import EntryListing
from infra.cosmos.source import CosmosSource
from infra.cosmos.token_key import TokenKey
from infra.cosmos.walk_lists import CosmosLists
from infra.settings import TTL_MAX, Settings
from infra.wire_names import WireNames
from infra.wiring import Outbox

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class ReadModelOf(Generic[S]):
    """What one service keeps of one type of aggregate."""

    container: str
    """Of the entries."""
    aggregate_type: str
    form: EntryForm[S]
    state_of: Callable[[Mapping[str, Any]], S]
    """The entry's state of an aggregate's stored ``data``."""
    project: Projection[S]


@dataclass(frozen=True)
class ReadModel(Generic[S]):
    """A read model of one service."""

    inbox: StateInbox[S]
    sweep: Sweep[S]
    listing: EntryListing[S]
    lists: Callable[[str], CosmosLists]
    """The entries and their sources, for a walk of this name over both."""


@dataclass(frozen=True)
class Queried:
    """By what a service finds its own documents, beside what every service looks for: its indexes follow."""

    names: WireNames
    read_model: EntryForm[Any] | None = None
    """None: the service keeps no read model."""


def wire_read_model(settings: Settings, outbox: Outbox, of: ReadModelOf[S]) -> ReadModel[S]:
    """Build a read model over the service's own container. Opens no connection: the first use opens it."""
    entries = outbox.container(of.container)

    async def blocked() -> Collection[AggregateKey]:
        return [AggregateKey(*marker.aggregate) for marker in await outbox.observer.lot.blocked()]

    inbox = StateInbox(
        CosmosEntries(entries, of.form, tombstone_seconds(settings)),
        CosmosSource(outbox.container(settings.cosmos_container), of.state_of),
        of.project,
    )

    def lists(walk: str) -> CosmosLists:
        sources = outbox.container(settings.cosmos_container)
        return CosmosLists(entries, sources, of.aggregate_type, walk, of.form.version)

    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{of.container}"
    tombstones = timedelta(seconds=settings.event_ttl_seconds)
    sweep = Sweep(inbox, lists("sweep"), lists("sweep-changes"), blocked, tombstones)
    return ReadModel(inbox, sweep, EntryListing(entries, of.form, scope, TokenKey(entries)), lists)


def tombstone_seconds(settings: Settings) -> int:
    """How long a deleted entry is kept: longer than any call, and than an event waits stored, parked and set aside.

    An event that comes later still does no harm: where there is no entry, the aggregate itself is looked for.
    """
    waits = 2 * settings.event_ttl_seconds + settings.parked_max_age_seconds
    return min(max(waits, 2 * int(LONGEST_CALL_SECONDS)), TTL_MAX)
