"""Lists the stored and the parked events of one aggregate with their states, and those of all in the order of writing.

The stored ones of one aggregate are one query in the aggregate's partition, with a consistent read. The aggregate's own
document names that partition, or, if the service keeps a team's own documents, one of its events. No property's value
is read.

All are read in the order of ``_ts``, the time of the write, a window of seconds at a time: it is a number, indexed in
every container, and of one clock, while ``createdAt`` is a text of the writer's clock. All documents of a transaction
have one ``_ts``. So an aggregate's events change their order between two windows only if a document was written again,
or the store's clock went back. Within a window they are sorted by sequence. ``_ts`` does not show whether the relay has
forwarded an event. A query that is ordered over several partitions returns no continuation token: the next window
begins at the last second that was seen.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, EventReader
from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.cosmos.store.container import Container, reported
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.feed import FeedEvent

MOST_EVENTS = 20_000
"""The most stored events that are listed of one aggregate."""
MOST_PARKED = 500
"""The most parked events that are read of one aggregate: the state of others is derived from the relay's progress."""

_ABOVE = 2**53
_STATE = "SELECT * FROM c WHERE c.type = @aggregateType AND c.id = @id"
_EVENT = "SELECT * FROM c WHERE c.type = @type AND c.aggregateType = @aggregateType AND c.aggregateId = @id"
_STORED = (
    "SELECT c.id, c.aggregateType, c.data.sequence, c.data.action, c.data.createdAt, c.data.correlationId, c._ts "
    "FROM c WHERE c.type = @type AND "
)
"""Unordered: the sequence is not indexed, since the index would cost each change request units."""


class EventState(StrEnum):
    """The state of an event."""

    WAITING = "waiting"
    """The relay's lease has not passed it. It may have been sent a moment ago."""
    SENT = "sent"
    PARKED = "parked"
    DISCARDED = "discarded"
    """It was discarded; subscribers get a skip marker in its place."""
    UNKNOWN = "unknown"
    """No lease shows the relay's progress, or it was read from a replica that lags."""


@dataclass(frozen=True)
class ListedEvent:
    """One event. Fields that a broken document lacks are None."""

    event_id: str
    sequence: int | None
    action: str | None
    created_at: str | None
    """The time by the writer's clock."""
    correlation_id: str | None
    state: EventState
    parking_id: str | None = None


@dataclass(frozen=True)
class EventPage:
    """A page of an aggregate's events, the newest first; the first page begins with those without a sequence."""

    aggregate: AggregateKey
    items: Sequence[ListedEvent]
    before: int | None
    """The parameter of the next page; None: this page is the last."""

    def view(self) -> Mapping[str, Any]:
        """As JSON, without personal data."""
        return {
            "aggregateType": self.aggregate.type,
            "aggregateId": self.aggregate.id,
            "items": [
                {
                    "eventId": event.event_id,
                    "sequence": event.sequence,
                    "action": event.action,
                    "createdAt": event.created_at,
                    "correlationId": event.correlation_id,
                    "state": event.state.value,
                    "stuckId": event.parking_id,
                }
                for event in self.items
            ],
            "before": self.before,
        }


@dataclass(frozen=True)
class KeyProgress:
    """How far the relay is in that part of the feed that holds one partition key."""

    lease: str | None
    """None: no lease covers the key, or the lease lacks its range: then nothing is known."""
    waiting_since: datetime | None
    """When the oldest change that is not forwarded was written, to the second; None: none waits."""
    partition: "changefeed.PartitionLag | None" = None
    """The physical partition that holds the key, as far as the replica knew that was asked; None: not known."""

    def is_past(self, session_token: str | None) -> bool:
        """Whether every change that the answer with this token knew of is forwarded or parked; False: or not known.

        By the numbers of the transactions alone: the store's clock may be turned back.
        """
        if self.partition is None or session_token is None:
            return False
        return self.partition.is_past(changefeed.session_lsn(session_token))

    def has_passed(self, written_at: datetime, session_token: str | None) -> bool | None:
        """Whether a change that was written then is forwarded or parked; None: not known.

        Where others of that partition wait, by the store's clock: nothing is decided by it. A change of the same second
        as the oldest one that waits counts as waiting. That none waits is believed only of a replica as new as the
        answer with this token, by which the change is known.
        """
        if self.lease is None:
            return None
        if self.is_past(session_token):
            return True
        return None if self.waiting_since is None else written_at < self.waiting_since


@dataclass(frozen=True)
class EventList:
    """Lists the events of a service's aggregates."""

    container: Container
    feed: ContainerProxy
    """The SDK's client of the same container."""
    lot: CosmosParkingLot
    progress: Callable[[Key], Awaitable[KeyProgress]]
    untyped: str | None = None
    """The aggregate type of events that were stored without one."""
    own_documents: bool = False
    """Whether the aggregates are a team's own documents."""

    async def page(self, aggregate: AggregateKey, size: int, before: int | None) -> EventPage:
        """Returns at most ``size`` events below sequence ``before``; the first page also has those without one.

        Raises:
            AggregateNotFound: no event of the aggregate is stored or parked.
            Throttled, Unavailable, Misconfigured: the store cannot be asked.
        """
        block = await self.lot.read_block(aggregate)
        waiting = await self.lot.list_waiting(aggregate, MOST_PARKED) if block.blocked else []
        parked = {each.event_id: each for each in waiting}
        with reported():
            key, stored = await self._query_stored(aggregate)
        if not stored and not parked:
            raise AggregateNotFound(
                f"no event of {aggregate} is stored or parked: all have expired, or there never was one"
            )
        progress, token = await self.progress(key), self.container.seen(key)

        def listed(item: Item) -> ListedEvent:
            shelf = parked.pop(str(item["id"]), None)
            passed = progress.has_passed(datetime.fromtimestamp(item["_ts"], UTC), token)
            state = EventState.UNKNOWN if passed is None else EventState.WAITING
            if item["id"] in block.discarded:
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
        """Returns the partition of an aggregate, and its stored events."""
        query = _EVENT if self.own_documents else _STATE
        named = {"@type": EVENT_TYPE, "@aggregateType": aggregate.type, "@id": aggregate.id}
        known = await self._anywhere(query, {name: named[name] for name in named if name in query})
        found_at = self.container.paths.of(known) if known else None
        key: Key = aggregate.id if found_at is None else found_at
        if self.own_documents and not known:
            return key, []
        await self.container.renew_token(key)
        query = _STORED + self.container.paths.of_aggregate("c", "@id")
        found = await self.container.first(
            query, {"@type": EVENT_TYPE, "@id": aggregate.id}, MOST_EVENTS, partition_key=key
        )
        return key, [each for each in found if each.get("aggregateType", self.untyped) == aggregate.type]

    async def _anywhere(self, query: str, named: Mapping[str, str]) -> Item | None:
        """Returns a document in any partition; what one replica does not show is looked for with consistent reads."""
        if found := await self.container.first(query, named, 1):
            return found[0]
        token = await renew_tokens(self.container, self.feed)
        async for items in self.container.pages(query, named, 1, session_token=token):
            if items:
                return items[0]
        return None


def _only_parked(event: ParkedEvent) -> ListedEvent:
    """Lists an event whose own document has expired, or a skip marker: only the parking lot has it."""
    return ListedEvent(event.event_id, event.sequence, event.action, None, None, EventState.PARKED, event.id)


def _cut(aggregate: AggregateKey, found: Sequence[ListedEvent], size: int, before: int | None) -> EventPage:
    numbered = [each for each in found if each.sequence and each.sequence < (before or _ABOVE)]
    numbered.sort(key=lambda each: -(each.sequence or 0))
    first = [each for each in found if each.sequence is None] if before is None else []
    page = numbered[:size]
    while len(page) < len(numbered) and numbered[len(page)].sequence == page[-1].sequence:
        page.append(numbered[len(page)])  # a discarded event and its skip marker have one sequence
    return EventPage(aggregate, [*first, *page], page[-1].sequence if len(page) < len(numbered) else None)


def _sequence(item: Mapping[str, Any]) -> int | None:
    sequence = item.get("sequence")
    return sequence if type(sequence) is int and sequence > 0 else None


def _text(item: Mapping[str, Any], name: str) -> str | None:
    value = item.get(name)
    return value if isinstance(value, str) else None


_EVENTS = "SELECT * FROM c WHERE c.type = @type AND c._ts >= @since AND c._ts < @to"
_IN_ORDER = " ORDER BY c._ts"

AT_ONCE = 200
"""The number of documents in a window; more if more were written within one second."""


@dataclass(frozen=True)
class Span:
    """The events that were stored in ``[since, to)``, in seconds since 1970 by the store's clock."""

    since: int
    to: int
    aggregate: AggregateKey | None = None
    """The aggregate of the events; None: all aggregates."""


@dataclass(frozen=True)
class Window:
    """All events that were stored from the beginning of a span until ``end``."""

    events: Sequence[FeedEvent]
    end: int


@dataclass(frozen=True)
class CosmosEventHistory:
    """The stored events that have not expired."""

    container: Container
    events: EventReader
    session_token: str
    """The token of all physical partitions: the read misses nothing stored before it, whatever replica answers."""
    at_once: int = AT_ONCE

    async def window(self, span: Span) -> Window:
        """Returns the first events of the span: a few, or all of one second.

        Raises Throttled, Unavailable or Misconfigured.
        """
        with reported():
            query, parameters = self._query(span)
            items, _ = await self.container.page(
                query + _IN_ORDER, parameters, self.at_once, None, session_token=self.session_token
            )
            if not items:
                return Window([], span.to)
            first, last = items[0]["_ts"], items[-1]["_ts"]
            if first < last:  # more may have been written in the last second than the page holds
                return self._window([item for item in items if item["_ts"] < last], span, last)
            second = Span(first, first + 1, span.aggregate)
            return self._window(await self._all(second), span, first + 1)

    def _window(self, items: list[Item], span: Span, end: int) -> Window:
        # Without the feed's _lsn, an event that has no sequence gets its place by the time of its transaction.
        found = self.events.events([item | {"_lsn": item["_ts"]} for item in items])
        if span.aggregate is not None:
            found = [event for event in found if event.aggregate == span.aggregate]
        return Window(found, end)

    async def _all(self, span: Span) -> list[Item]:
        found: list[Item] = []
        query, parameters = self._query(span)
        async for items in self.container.pages(
            query, parameters, self.at_once, session_token=self.session_token
        ):
            found += items
        return found

    def _query(self, span: Span) -> tuple[str, dict[str, Any]]:
        query, parameters = _EVENTS, {"@type": EVENT_TYPE, "@since": span.since, "@to": span.to}
        if span.aggregate is None:
            return query, parameters
        of_one = self.events.paths.of_aggregate("c", "@id")
        return f"{query} AND {of_one}", parameters | {"@id": span.aggregate.id}
