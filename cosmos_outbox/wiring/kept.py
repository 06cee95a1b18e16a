"""A read model of one service, as it is kept: what applies its events, heals and lists its entries."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.form import Listing
from cosmos_outbox.inbox.healing import Healing
from cosmos_outbox.inbox.shows import shows
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class ReadModel(Generic[S]):
    """A read model of one service."""

    inbox: StateInbox[S]
    healing: Healing[S] | None
    """None: it has no source that its entries could be compared with."""
    listing: Listing[S]

    async def shows(self, key: AggregateKey, sequence: int) -> bool:
        """Whether it holds the aggregate's events up to this one, after a wait of two seconds at most."""
        return await shows(self.inbox.entries, key, sequence)
