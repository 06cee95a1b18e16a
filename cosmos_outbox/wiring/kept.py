"""A read model of one service, as it is kept: what applies its events, heals, sweeps and lists its entries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.form import Listing
from cosmos_outbox.inbox.shows import shows
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.sweep import Sweep
from cosmos_outbox.inbox.walk import Lists
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S", bound=BaseModel)


class CountedLists(Lists, Protocol):
    """Lists of which it is known how long a walk over them is."""

    async def count_sources(self) -> int:
        """How many sources there are, deleted ones too. Raises StoreAway."""


@dataclass(frozen=True)
class ReadModel(Generic[S]):
    """A read model of one service."""

    inbox: StateInbox[S]
    sweep: Sweep[S]
    listing: Listing[S]
    lists: Callable[[str], CountedLists]
    """The entries and their sources, for a walk of this name over both."""

    async def shows(self, key: AggregateKey, sequence: int) -> bool:
        """Whether it holds the aggregate's events up to this one, after a wait of two seconds at most."""
        return await shows(self.inbox.entries, key, sequence)
