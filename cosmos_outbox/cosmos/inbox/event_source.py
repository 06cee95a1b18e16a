"""An event that nobody brings is read where it was stored, and what is not found behind a fence is gone.

An aggregate of this library has its id for partition key, so one query in one partition finds its events. Those of a
team's own documents are looked for in all partitions.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, EventReader
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments, last
from cosmos_outbox.cosmos.inbox.entries import newest_item, store_away
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.fences import fence_everywhere
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import at
from cosmos_outbox.inbox.effect import HeldBack
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.parking_lot import ParkingLot
from cosmos_outbox.settings.errors import Misconfigured

_EVENTS = "SELECT * FROM c WHERE c.type = @type"
_PAGE = 100


@dataclass(frozen=True)
class CosmosEventSource:
    """See :class:`cosmos_outbox.inbox.effect.EffectSource`."""

    container: Container
    feed: ContainerProxy
    """The same container."""
    reader: EventReader
    lot: ParkingLot
    documents: SourceDocuments
    """The aggregates; or, of a team's own documents, their events."""
    source: str
    """The name of the service, as its messages tell it."""
    own: bool
    """The events are beside documents of a team's own."""

    async def events(
        self, key: AggregateKey, places: range, since: datetime | None, *, fenced: bool
    ) -> Sequence[Event]:
        """Those of an aggregate in these places. Raises StoreAway."""
        more, given = " AND c.data.sequence >= @from AND c.data.sequence < @to", dict[str, Any]()
        if since is not None:
            more, given = f"{more} AND c._ts >= @since", {"@since": int(since.timestamp())}
        given |= {"@from": places.start, "@to": places.stop}
        return [each async for each in self._found(key, more, given, fenced=fenced)]

    async def held(self, key: AggregateKey) -> HeldBack:
        """What the relay holds back of an aggregate. Raises StoreAway."""
        try:
            marker = (await self.lot.markers([key])).get(key)
        except (Throttled, Unavailable, Misconfigured) as error:
            raise StoreAway(str(error)) from error
        if marker is None:
            return HeldBack()
        return HeldBack(marker.accepted if marker.blocked else None, frozenset(marker.discarded))

    async def last(self, key: AggregateKey) -> int | None:
        """The aggregate's last place. Raises StoreAway."""
        if not self.own:
            item = await newest_item(self.container, key)
            return None if item is None else last(at(item, self.documents.sequence))
        places = [each.sequence async for each in self._found(key, "", {}, fenced=True)]
        return max((each for each in places if each), default=None)

    async def _found(
        self, key: AggregateKey, more: str, given: dict[str, Any], *, fenced: bool
    ) -> AsyncIterator[Event]:
        of_one = self.container.paths.of_aggregate("c", "@id")
        query, given = f"{_EVENTS} AND {of_one}{more}", {**given, "@type": EVENT_TYPE, "@id": key.id}
        try:
            page = await self._pages(key, fenced=fenced)
            token: str | None = None
            while True:
                items, token = await page(query, given, token)
                for event in self.reader.events(items):
                    if isinstance(event, OutboxEvent) and event.aggregate == key:
                        yield stored_event(event, self.source)
                if token is None:
                    return
        except StoreFailed as error:
            raise store_away(error.failure) from error
        except (Throttled, Unavailable, Misconfigured) as error:
            raise StoreAway(str(error)) from error

    async def _pages(
        self, key: AggregateKey, *, fenced: bool
    ) -> Callable[[str, dict[str, Any], str | None], Awaitable[tuple[list[Item], str | None]]]:
        """What gives a page of a query: of the aggregate's partition, or of all."""
        container = self.container
        if not self.own:
            if fenced:
                await container.fence(key.id)
            return lambda query, given, token: container.page(
                query, given, _PAGE, token, partition_key=key.id
            )
        if not fenced:
            return lambda query, given, token: container.page(query, given, _PAGE, token)
        behind = await fence_everywhere(container, self.feed)
        return lambda query, given, token: container.page_behind(behind, query, given, _PAGE, token)


def stored_event(stored: OutboxEvent, source: str) -> Event:
    """A stored event, as its message tells it."""
    return Event(
        stored.id, stored.aggregate, stored.action, stored.sequence, stored.created_at, stored.data,
        schema_version=stored.schema_version, source=source,
    )  # fmt: skip
