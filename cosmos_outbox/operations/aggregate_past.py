"""What became of each event of one aggregate, as far as the store tells; nothing is guessed.

The outbox stores no time of sending: an event is known to be forwarded when its lease has passed the second in which it
was stored. A sequence without a document has expired. The order of the reads matters: the aggregate first, so that no
event that is newer than it is missed for expired; the lease after the events, so that it cannot have passed an event
before that was stored; the parking lot last, since a relay parks before its lease passes. That no event waits is
believed of a replica only that is as new as a fence behind the events: on an account whose consistency is weaker than
Session the leases may be measured on an older one, and then it is not known what is forwarded. Each destination has
leases and a parking lot of its own, and is read so by itself.

In which partition an aggregate is, its own document tells: it lives at least as long as its events, since each of them
was stored in one transaction with it. Without one only the partition of its id is searched, since over all of them
every event of every aggregate would be read.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, EventReader
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.fences import fence_everywhere
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key, at
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.leaving import WayOut
from cosmos_outbox.operations.past_events import (
    MOST_PARKED,
    NO_LIMIT,
    Parked,
    Past,
    PastEvent,
    ReadBeside,
    expired,
    newest_first,
    only_parked,
    past_event,
    written_at,
)
from cosmos_outbox.operations.relay_status import KeyProgress, RelayObserver
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.settings.own_container import OwnContainer

_LOOKS = 3
"""At the leases: the replica that answers may be a little behind the one that had the events."""

_STATE = "SELECT * FROM c WHERE c.type = @aggregateType AND c.id = @id"
_EVENT_OF_IT = (
    "SELECT * FROM c WHERE c.type = @type AND c.aggregateType = @aggregateType AND c.aggregateId = @id"
)
_PLACES = "SELECT c.id, c.data.sequence FROM c WHERE c.type = @type AND "
"""Of one partition. Without order: the sequence is not indexed, since each change would pay for it."""
_DOCUMENTS = "SELECT * FROM c WHERE c.type = @type AND ARRAY_CONTAINS(@ids, c.id)"

MOST_EVENTS = 20_000
"""Of one aggregate, within their TTL: of one that has more, not all are shown, and none is said to have expired."""


@dataclass(frozen=True)
class _Stored:
    """What the container of the service has of an aggregate."""

    state: Item | None = None
    partition_key: Key | None = None
    """None: it has nothing."""
    last_sequence: int | None = None
    """As its own document has it."""
    events: Sequence[Item] = ()
    more_below: int | None = None
    """The lowest sequence among these events, if there are more below it."""
    whole: bool = True
    """Whether all that is stored was looked at."""


@dataclass(frozen=True)
class AggregatePast:
    """Reads the past of one aggregate of a service."""

    container: Container
    events: EventReader
    ways: Sequence[WayOut]
    """To each destination, the service's own transport first."""
    own: OwnContainer | None = None
    """What is known of the team's own documents: then an aggregate is found by its events."""

    async def page(self, aggregate: AggregateKey, size: int, before: int | None) -> Past:
        """At most ``size`` events with sequences below ``before``, and on the first page those without a sequence.

        Raises:
            AggregateNotFound: neither the store nor a parking lot has anything of the aggregate.
            Throttled, Unavailable, Misconfigured: the store cannot be asked.
        """
        try:
            stored = await self._read_stored(aggregate, size, before)
        except StoreFailed as error:
            raise error.failure.error() from error
        key = stored.partition_key or aggregate.id
        token = self.container.seen(key)
        readings = await asyncio.gather(*(self._read_beside(way, aggregate, key, token) for way in self.ways))
        reading, *beside = readings
        if stored.partition_key is None and not any(each.parked.events for each in readings):
            raise AggregateNotFound(f"nothing is stored of {aggregate}: it never was, or all has expired")
        floor = stored.more_below or 1
        past = [
            past_event(event, reading, beside)
            for item in stored.events
            if (event := self.events.event(item)) is not None and event.aggregate == aggregate
        ]
        past = newest_first([*past, *only_parked(past, readings, floor, before)])
        return Past(
            aggregate,
            stored.last_sequence,
            bool(self.own is None and stored.state and stored.state["data"].get("deleted")),
            past,
            expired(past, floor, self._top(stored, past, before)) if stored.whole else [],
            stored.more_below,
            reading.progress,
            {each.of.name: each.progress for each in beside},
        )

    @property
    def observer(self) -> RelayObserver:
        """Of the relay to the service's own transport."""
        return self.ways[0].observer

    async def _read_beside(
        self, way: WayOut, aggregate: AggregateKey, partition_key: Key, token: str | None
    ) -> ReadBeside:
        progress = await self._progress(way.observer, partition_key, token)
        return ReadBeside(progress, token, await self._read_parked(way, aggregate), way.of)

    async def _progress(
        self, observer: RelayObserver, partition_key: Key, session_token: str | None
    ) -> KeyProgress:
        """How far the relay is, by a replica that is new enough, if one is met in a few looks."""
        for _ in range(_LOOKS):
            progress = await observer.progress(partition_key)
            behind = progress.has_passed(progress.as_of, session_token) is None
            if not behind or progress.lease is None or session_token is None:
                break
        return progress

    async def _read_stored(self, aggregate: AggregateKey, size: int, before: int | None) -> _Stored:
        state, found = await (self._own_place(aggregate) if self.own else self._place(aggregate))
        key: Key = aggregate.id if found is None else found
        of_one = {"@type": EVENT_TYPE, "@id": aggregate.id}
        if self.own is not None and found is None:
            return _Stored()
        await self.container.fence(key)  # no event of the aggregate that was read is missed for expired
        last = self._last_sequence(aggregate, state)
        query = _PLACES + self.events.paths.of_aggregate("c", "@id")
        places = await self.container.first(query, of_one, MOST_EVENTS, partition_key=key)
        if not places:
            return _Stored(state, found, last)
        sequences = {str(each["id"]): _place(each) for each in places}
        below = {name: place for name, place in sequences.items() if place and place < (before or NO_LIMIT)}
        newest = sorted(below, key=below.__getitem__, reverse=True)
        unnumbered = [name for name, place in sequences.items() if place is None]
        wanted = [*newest[:size], *(unnumbered[:size] if before is None else [])]
        floor = below[newest[size - 1]] if len(newest) > size else None
        documents = {"@type": EVENT_TYPE, "@ids": wanted}
        events = await self.container.first(_DOCUMENTS, documents, len(wanted) + 1, partition_key=key)
        return _Stored(state, key, last, events, floor, whole=len(places) < MOST_EVENTS)

    async def _place(self, aggregate: AggregateKey) -> tuple[Item | None, Key | None]:
        """The aggregate's own document, and its partition."""
        found = await self._anywhere(_STATE, {"@aggregateType": aggregate.type, "@id": aggregate.id})
        return (found, self.events.paths.of(found)) if found else (None, None)

    async def _own_place(self, aggregate: AggregateKey) -> tuple[Item | None, Key | None]:
        """The same of a team's own documents: in which partition, the events tell; the id may be another one's too."""
        named = {"@type": EVENT_TYPE, "@aggregateType": aggregate.type, "@id": aggregate.id}
        event = await self._anywhere(_EVENT_OF_IT, named)
        key = self.events.paths.of(event) if event else None
        if key is None:
            return None, None
        return await self.container.read(aggregate.id, key), key

    async def _anywhere(self, query: str, named: Mapping[str, str]) -> Item | None:
        found = await self.container.first(query, named, 1) or await self._behind_fences(query, named)
        return found[0] if found else None

    async def _behind_fences(self, query: str, named: Mapping[str, str]) -> list[Item]:
        """A document in any partition: a replica may lag, so what one does not show may be there."""
        fences = await fence_everywhere(self.container, self.observer.feed)
        token: str | None = None
        while True:
            found, token = await self.container.page_behind(fences, query, named, 1, token)
            if found or token is None:
                return found

    async def _read_parked(self, way: WayOut, aggregate: AggregateKey) -> Parked:
        lot = way.parking.lot
        marker = (await lot.markers([aggregate])).get(aggregate, Marker(aggregate))
        waiting = await lot.waiting(aggregate, MOST_PARKED) if marker.blocked else []
        events = {parked.event_id: parked for parked, _ in waiting}
        return Parked(marker, events, {parked.event_id: event for parked, event in waiting})

    def _last_sequence(self, aggregate: AggregateKey, state: Item | None) -> int | None:
        if state is None:
            return None
        if self.own is None:
            return int(state["data"].get("lastSequence", 0))
        path = self.own.aggregates.get(aggregate.type)
        last = at(state, path) if path else None
        return last if type(last) is int else None

    def _top(self, stored: _Stored, past: Iterable[PastEvent], before: int | None) -> int:
        """The highest sequence of which it can be said that its document should be on the page."""
        if before is not None:
            return before - 1
        highest = max((event.sequence for event in past if event.sequence), default=0)
        last = stored.last_sequence
        if stored.state is None or last is None:
            return highest
        lifetime = timedelta(seconds=self.observer.event_ttl_seconds)
        # Written with the newest event: while that one lives, a missing one is only not seen yet by this read.
        fresh = written_at(stored.state) > self.observer.clock() - lifetime
        return highest if fresh and highest else max(highest, last)


def _place(item: Item) -> int | None:
    """The event's sequence; None: it has none, or none that is one."""
    sequence = item.get("sequence")
    if not isinstance(sequence, int | float) or isinstance(sequence, bool) or sequence < 1:
        return None
    return int(sequence)
