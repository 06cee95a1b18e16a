"""Lists the stored and the parked events of one aggregate, the newest first, each with where it stands.

The stored ones are one query in the aggregate's partition, behind a fence. In which partition that is, its own document
tells, or where the service keeps a team's own documents, one of its events. No value of a property is read.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.fences import fence_everywhere
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkingLot

MOST_EVENTS = 20_000
"""Of one aggregate, within their TTL: of one that has more, not all are listed."""
MOST_PARKED = 500
"""Of one aggregate: those behind are listed as the relay's progress has them."""

_ABOVE = 2**53
_STATE = "SELECT * FROM c WHERE c.type = @aggregateType AND c.id = @id"
_EVENT = "SELECT * FROM c WHERE c.type = @type AND c.aggregateType = @aggregateType AND c.aggregateId = @id"
_STORED = (
    "SELECT c.id, c.aggregateType, c.data.sequence, c.data.action, c.data.createdAt, c.data.correlationId, c._ts "
    "FROM c WHERE c.type = @type AND "
)
"""Without order: the sequence is not indexed, since each change would pay for it."""


class EventState(StrEnum):
    """Where an event stands."""

    WAITING = "waiting"
    """The relay's lease has not passed it. It may have been sent a moment ago."""
    SENT = "sent"
    PARKED = "parked"
    DISCARDED = "discarded"
    """It was given up; subscribers get a notice in its place."""
    UNKNOWN = "unknown"
    """No lease tells how far the relay is, or it was measured on a replica that lags."""


@dataclass(frozen=True)
class ListedEvent:
    """One event. What a broken document does not have is None."""

    event_id: str
    sequence: int | None
    action: str | None
    created_at: str | None
    """By the writer's clock."""
    correlation_id: str | None
    state: EventState
    parking_id: str | None = None


@dataclass(frozen=True)
class EventPage:
    """Events of an aggregate, the newest first; on the first page those without a sequence stand on top."""

    aggregate: AggregateKey
    items: Sequence[ListedEvent]
    before: int | None
    """What to ask for next; None: this page is the last."""


class RelayProgress(Protocol):
    """How far the relay is, where one partition key is."""

    def has_passed(self, written_at: datetime, session_token: str | None) -> bool | None:
        """Whether a change that was written then is forwarded or parked; None: not known."""


@dataclass(frozen=True)
class EventList:
    """Lists the events of a service's aggregates."""

    container: Container
    feed: ContainerProxy
    """The same container, by the SDK."""
    lot: ParkingLot
    progress: Callable[[Key], Awaitable[RelayProgress]]
    untyped: str | None = None
    """The aggregate type of events that were stored without one."""
    own_documents: bool = False
    """Whether the aggregates are a team's own documents."""

    async def page(self, aggregate: AggregateKey, size: int, before: int | None) -> EventPage:
        """At most ``size`` events with sequences below ``before``, and on the first page those without a sequence.

        Raises:
            AggregateNotFound: no event of the aggregate is stored or parked.
            Throttled, Unavailable, Misconfigured: the store cannot be asked.
        """
        marker = (await self.lot.markers([aggregate])).get(aggregate, Marker(aggregate))
        waiting = await self.lot.list_waiting(aggregate, MOST_PARKED) if marker.blocked else []
        parked = {each.event_id: each for each in waiting}
        try:
            key, stored = await self._query_stored(aggregate)
        except StoreFailed as error:
            raise error.failure.error() from error
        if not stored and not parked:
            raise AggregateNotFound(
                f"no event of {aggregate} is stored or parked: all have expired, or it never was"
            )
        progress, token = await self.progress(key), self.container.seen(key)

        def listed(item: Item) -> ListedEvent:
            shelf = parked.pop(str(item["id"]), None)
            passed = progress.has_passed(datetime.fromtimestamp(item["_ts"], UTC), token)
            state = EventState.UNKNOWN if passed is None else EventState.WAITING
            if item["id"] in marker.discarded:
                state = EventState.DISCARDED
            elif shelf:
                state = EventState.PARKED
            elif passed:
                state = EventState.SENT
            return ListedEvent(
                str(item["id"]), _sequence(item), _text(item, "action"), _text(item, "createdAt"),
                _text(item, "correlationId"), state, shelf.id if shelf else None,
            )  # fmt: skip

        found = [listed(item) for item in stored]
        return _cut(aggregate, [*found, *map(_only_parked, parked.values())], size, before)

    async def _query_stored(self, aggregate: AggregateKey) -> tuple[Key, Sequence[Item]]:
        """The partition of an aggregate, and its stored events."""
        query = _EVENT if self.own_documents else _STATE
        named = {"@type": EVENT_TYPE, "@aggregateType": aggregate.type, "@id": aggregate.id}
        known = await self._anywhere(query, {name: named[name] for name in named if name in query})
        found_at = self.container.paths.of(known) if known else None
        key: Key = aggregate.id if found_at is None else found_at
        if self.own_documents and not known:
            return key, []
        await self.container.fence(key)
        query = _STORED + self.container.paths.of_aggregate("c", "@id")
        found = await self.container.first(
            query, {"@type": EVENT_TYPE, "@id": aggregate.id}, MOST_EVENTS, partition_key=key
        )
        return key, [each for each in found if each.get("aggregateType", self.untyped) == aggregate.type]

    async def _anywhere(self, query: str, named: Mapping[str, str]) -> Item | None:
        """A document in any partition: what one replica does not show is looked for behind fences."""
        if found := await self.container.first(query, named, 1):
            return found[0]
        fences, token = await fence_everywhere(self.container, self.feed), None
        while True:
            items, token = await self.container.page_behind(fences, query, named, 1, token)
            if items or token is None:
                return items[0] if items else None


def _only_parked(event: ParkedEvent) -> ListedEvent:
    """Its own document has expired, or it is a notice: the parking lot alone has it."""
    return ListedEvent(event.event_id, event.sequence, event.action, None, None, EventState.PARKED, event.id)


def _cut(aggregate: AggregateKey, found: Sequence[ListedEvent], size: int, before: int | None) -> EventPage:
    numbered = [each for each in found if each.sequence and each.sequence < (before or _ABOVE)]
    numbered.sort(key=lambda each: -(each.sequence or 0))
    first = [each for each in found if each.sequence is None] if before is None else []
    page = numbered[:size]
    while len(page) < len(numbered) and numbered[len(page)].sequence == page[-1].sequence:
        page.append(numbered[len(page)])  # a discarded event and its notice have one sequence
    return EventPage(aggregate, [*first, *page], page[-1].sequence if len(page) < len(numbered) else None)


def _sequence(item: Mapping[str, Any]) -> int | None:
    sequence = item.get("sequence")
    return sequence if type(sequence) is int and sequence > 0 else None


def _text(item: Mapping[str, Any], name: str) -> str | None:
    value = item.get(name)
    return value if isinstance(value, str) else None
