"""Changes parked events and their block together: all are in one logical partition of one container.

A block is replaced at the version that was read, in one transaction with the events that it counts. The cause of a
refused transaction is found by a read with the refusal's own session token: either the block has changed, or some of
the events were parked, or removed, by an earlier attempt whose answer was lost.

A read raises Throttled or Unavailable. A write raises StoreFailed, since what a refusal means depends on the write.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.relay.parked_documents import (
    BLOCK_FIELDS,
    BLOCKED,
    DISCARDED,
    EVENT,
    EVENT_FIELDS,
    FREE,
    PARTITION,
    Change,
    ParkedDocuments,
    ParkedEvent,
    ParkedPage,
    block_id,
    block_item,
    block_of,
    chunks,
    named,
)
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, of_fields, reported
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import PreconditionFailed
from cosmos_outbox.outbox.feed import FeedEvent, Poison, SkipMarker

CHANGED = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
"""Refusals of a transaction that show that others changed something first, or that an earlier attempt was stored."""

_IDS_AT_ONCE = 200
ITEMS_AT_ONCE = 1000


_BLOCKS = "SELECT * FROM c WHERE ARRAY_CONTAINS(@types, c.type)"
_LISTED_BLOCKS = of_fields(BLOCK_FIELDS, _BLOCKS)
_LISTED = of_fields(EVENT_FIELDS, "SELECT * FROM c WHERE c.type = @type ")
_EVENTS = f"{_LISTED}ORDER BY c.parkedAt"
_ALONE = f"{_LISTED}AND c.aggregateType = null AND c.parkedAt < @at"
_OF_ONE = "FROM c WHERE c.type = @type AND c.aggregateType = @aggregateType AND c.aggregateId = @aggregateId"
_WAITING = f"SELECT * {_OF_ONE} ORDER BY c.position"
_LISTED_WAITING = of_fields(EVENT_FIELDS, _WAITING)
_COUNT = f"SELECT COUNT(1) AS count {_OF_ONE}"

FEW_AGGREGATES, FEW_BLOCKS = 20, 10
"""Up to so many aggregates are read by name; for more, all blocks are read if there are no more than so many."""

_RACES = 5
_MANY = 100
_REFUSED_CONTENT = {Kind.TOO_LARGE, Kind.INVALID}


class CosmosParkingLot:
    """Stores events that cannot be sent, and the events that wait behind them, durably.

    Rule ``one-transaction``: a block, its count and the events that it counts change together, at the block's
    version. Every call raises Throttled or Unavailable if the store could not be used, with the reason. After
    Unavailable a change may or may not be stored: the next call finds out.
    """

    def __init__(
        self,
        container: Container,
        scope: str,
        documents: ParkedDocuments,
        *,
        ttl_seconds: int,
        clock: Clock = utc_now,
    ) -> None:
        self._container = container
        self._scope = scope
        self._documents = documents
        self._ttl = ttl_seconds
        self._clock = clock

    async def read_blocks(self, keys: Collection[AggregateKey]) -> Mapping[AggregateKey, AggregateBlock]:
        """Returns the blocks of these aggregates, with a consistent read (rule ``consistent-before-free``)."""
        await self._renew_token()
        items = await self._read_all_blocks() if len(keys) > FEW_AGGREGATES else None
        if items is None:
            items = await self._read_many([block_id(key) for key in keys])
        found = {block.aggregate: block for block in map(block_of, items)}
        return {key: found[key] for key in keys if key in found}

    async def read_block(self, aggregate: AggregateKey) -> AggregateBlock:
        """Returns the block of one aggregate, with a consistent read; where there is none, an empty one."""
        return (await self.read_blocks([aggregate])).get(aggregate, AggregateBlock(aggregate))

    async def _read_all_blocks(self) -> list[Item] | None:
        """Reads all blocks in one small query for a page of many aggregates; None: there are too many blocks."""
        items, more = await self._page(_BLOCKS, {"@types": [BLOCKED, FREE]}, FEW_BLOCKS, None)
        return None if more else items

    async def list_blocked(self) -> Sequence[AggregateBlock]:
        """Returns the blocks of all parked aggregates, possibly stale: for display, not to be stored."""
        items = self._query(_LISTED_BLOCKS, {"@types": [BLOCKED]})
        return [block_of(item) async for item in items]

    async def park(self, block: AggregateBlock, events: Sequence[FeedEvent]) -> Collection[str]:
        """Parks events of a blocked aggregate in order. Already parked ones are not changed.

        Rule ``park-at-version``: only behind the block that was read, however old that reading is. A crash halfway
        leaves the first events parked. Returns the ids of the events that were certainly not parked before.

        Raises:
            PreconditionFailed: the block is not, or no longer, at ``block.version``: read and decide again.
        """
        behind, places = block.with_parked(events)
        now = self._clock()
        items = [
            self._documents.event_item(event, block, place, at=now)
            for event, place in zip(events, places, strict=True)
        ]
        ids = {item["id"]: event.id for item, event in zip(items, events, strict=True)}
        parked: set[str] = set()
        for chunk in chunks(items):
            behind, new = await self._park(behind, chunk)
            parked.update(ids[item["id"]] for item in new)
        return parked

    async def _park(self, block: AggregateBlock, new: list[Item]) -> tuple[AggregateBlock, list[Item]]:
        """Parks in one transaction; in halves if the store refuses it, since a refusal names no document."""
        for _ in range(_RACES):
            if not new:
                return block, new
            try:
                return await self._put(_counted(block, len(new)), *map(Write.create, new)), new
            except StoreFailed as error:
                if error.failure.kind in _REFUSED_CONTENT and len(new) > 1:
                    return await self._park_halves(block, new)
                if error.failure.kind in _REFUSED_CONTENT and any(map(self._documents.has_document, new)):
                    new = [self._documents.without_document(item) for item in new]
                    continue
                if error.failure.kind not in CHANGED:
                    raise error.failure.passing() from error
            await self._must_be_at(block)
            parked = await self._still_there([item["id"] for item in new])
            new = [item for item in new if item["id"] not in parked]
        raise _changed()

    async def _park_halves(self, block: AggregateBlock, new: list[Item]) -> tuple[AggregateBlock, list[Item]]:
        """Parks each half: only the documents that the store does not take are left out."""
        middle = len(new) // 2
        block, first = await self._park(block, new[:middle])
        block, second = await self._park(block, new[middle:])
        return block, first + second

    async def _must_be_at(self, block: AggregateBlock) -> None:
        newest = await self._read(block_id(block.aggregate))
        if (newest["_etag"] if newest else "") != block.version:
            raise _changed()

    async def store(self, block: AggregateBlock) -> AggregateBlock:
        """Stores a changed block. Raises PreconditionFailed as :meth:`park` does. Returns the stored block."""
        try:
            return await self._put(block)
        except StoreFailed as error:
            raise _changed() if error.failure.kind in CHANGED else error.failure.passing() from error

    async def settle(
        self, block: AggregateBlock, delivered: Sequence[ParkedEvent], change: Change
    ) -> AggregateBlock:
        """Removes parked events that the broker has, and changes the block of the replay that sent them.

        The relay may have parked more events behind the block since, so the change is applied to the newest block.
        Rule ``end-at-zero``: once nothing waits, the aggregate is unblocked.

        Raises:
            PreconditionFailed: the aggregate is being replayed by another replay, or by none.
        """
        ids = [event.id for event in delivered]
        for _ in range(_RACES):
            after = _unblocked_at_zero(_counted(change(block), -len(ids)))
            try:
                return await self._put(after, *map(Write.delete, ids))
            except StoreFailed as error:
                block = await self._read_still_replayed(block, error)
                ids = await self._still_there(ids)
        raise _changed()

    async def _still_there(self, ids: Sequence[str]) -> list[str]:
        return [item["id"] for item in await self._read_many(ids, ["id"])]

    async def recount(self, block: AggregateBlock) -> AggregateBlock:
        """Recounts the waiting events, as after a manual removal. Raises PreconditionFailed as :meth:`settle` does."""
        for _ in range(_RACES):
            with reported(Failure.passing):
                count = await self._container.count(_COUNT, _of(block.aggregate), partition_key=PARTITION)
            try:
                return await self._put(_unblocked_at_zero(replace(block, waiting=count)))
            except StoreFailed as error:
                block = await self._read_still_replayed(block, error)
        raise _changed()

    async def _read_still_replayed(self, block: AggregateBlock, error: StoreFailed) -> AggregateBlock:
        """Returns the block as others have changed it, if the replay is still the same. Raises PreconditionFailed."""
        if error.failure.kind not in CHANGED:
            raise error.failure.passing() from error
        item = await self._read(block_id(block.aggregate))
        newest = block_of(item) if item else None
        if newest is None or newest.replay is None or newest.replay != block.replay:
            raise _changed() from error
        return newest

    async def discard(
        self, block: AggregateBlock, event: ParkedEvent, skip_marker: SkipMarker, reason: str
    ) -> None:
        """Stores the block, and the skip marker in the event's place. Raises PreconditionFailed.

        The event stays visible, with the reason, until it expires.
        """
        item = await self._read(event.id)
        if item is None or item["type"] != EVENT:
            raise _changed()
        placed = self._documents.skip_marker_item(skip_marker, item)
        await self._replace(item, reason, lambda write: self._put(block, write, Write.create(placed)))

    async def discard_alone(self, event: ParkedEvent, reason: str) -> None:
        """Discards a document that belongs to no aggregate."""
        item = await self._read(event.id)
        if item is not None and item["type"] == EVENT:
            await self._replace(item, reason, self._write)

    async def _replace(self, item: Item, reason: str, write: Callable[[Write], Awaitable[object]]) -> None:
        discarded = self._documents.discarded_item(item, reason, at=self._clock(), ttl=self._ttl)
        try:
            await write(Write.replace(discarded, item["_etag"]))
        except StoreFailed as error:
            raise (_changed() if error.failure.kind in CHANGED else error.failure.passing()) from error

    async def park_alone(self, poison: Poison) -> bool:
        """Parks a document that belongs to no aggregate. Returns False if it is parked or discarded already."""
        item = self._documents.alone_item(poison, at=self._clock())
        for attempt in (item, self._documents.without_document(item)):
            try:
                await self._write(Write.create(attempt))
            except StoreFailed as error:
                if error.failure.kind is Kind.CONFLICT:
                    return False
                if error.failure.kind not in _REFUSED_CONTENT or attempt is not item:
                    raise error.failure.passing() from error
            else:
                break
        return True

    async def alone_since_before(self, at: datetime) -> Sequence[ParkedEvent]:
        """Returns some documents that belong to no aggregate and were parked before this time."""
        items, _ = await self._page(_ALONE, {"@type": EVENT, "@at": at.isoformat()}, _MANY, None)
        return [self._documents.event(item, None) for item in items]

    async def page(self, size: int, continuation_token: str | None, *, discarded: bool = False) -> ParkedPage:
        """Returns a page of parked, or of discarded events, oldest first, without their documents.

        Raises UnknownContinuation.
        """
        listed = DISCARDED if discarded else EVENT
        scope = f"{self._scope}/{listed}"
        token = continuation.unseal(scope, continuation_token) if continuation_token else None
        items, token = await self._page(_EVENTS, {"@type": listed}, size, token)
        owners = {owner for item in items if (owner := named(item))}
        found = await self._read_many([block_id(owner) for owner in owners], BLOCK_FIELDS)
        blocks = {block.aggregate: block for block in map(block_of, found)}
        events = [
            self._documents.event(item, blocks.get(owner) if owner else None)
            for item in items
            for owner in [named(item)]
        ]
        return ParkedPage(events, continuation.seal(scope, token) if token else None)

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """Returns one parked or discarded event; None: proven that there is none with this id."""
        item = await self._read(parking_id)
        if item is None:
            await self._renew_token()
            item = await self._read(parking_id)
        if item is None or item["type"] not in (EVENT, DISCARDED):
            return None
        owner = named(item)
        block = await self._read(block_id(owner)) if owner else None
        return self._documents.event(item, block_of(block) if block else None)

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """Returns an aggregate's first parked events, in order, with the events to be sent."""
        parked = await self._first(_WAITING, aggregate, limit)
        return [(each, self._documents.feed_event(each)) for each in parked]

    async def list_waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[ParkedEvent]:
        """As :meth:`waiting`, without documents."""
        return await self._first(_LISTED_WAITING, aggregate, limit)

    async def _first(self, query: str, aggregate: AggregateKey, limit: int) -> list[ParkedEvent]:
        found: list[ParkedEvent] = []
        async for item in self._query(query, _of(aggregate), size=limit):
            found.append(self._documents.event(item, None))
            if len(found) == limit:
                break
        return found

    async def _renew_token(self) -> None:
        """Makes later reads consistent: they miss no write that was committed before."""
        with reported(Failure.passing):
            await self._container.renew_token(PARTITION)

    async def _read(self, item_id: str) -> Item | None:
        """Returns an item; None if this read sees none."""
        with reported(Failure.passing):
            return await self._container.read(item_id, PARTITION)

    async def _read_many(self, ids: Sequence[str], fields: Sequence[str] = ()) -> list[Item]:
        """Returns those of the items that exist, in any order; of each only ``fields``, if any are named."""
        found: list[Item] = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            names = {f"@id{number}": each for number, each in enumerate(ids[start : start + _IDS_AT_ONCE])}
            query = f"SELECT * FROM c WHERE c.id IN ({', '.join(names)})"  # noqa: S608 - only names of parameters
            query = of_fields(fields, query) if fields else query
            found += [item async for item in self._query(query, names)]
        return found

    async def _query(
        self, query: str, parameters: Mapping[str, Any], *, size: int = ITEMS_AT_ONCE
    ) -> AsyncIterator[Item]:
        """Yields all items of a query, page by page."""
        with reported(Failure.passing):
            async for items in self._container.pages(query, parameters, size, partition_key=PARTITION):
                for item in items:
                    yield item

    async def _page(
        self, query: str, parameters: Mapping[str, Any], size: int, token: str | None
    ) -> tuple[list[Item], str | None]:
        """Returns one page of a query, and the token of the next. Raises UnknownContinuation for an invalid token."""
        try:
            return await self._container.page(query, parameters, size, token, partition_key=PARTITION)
        except StoreFailed as error:
            if token and error.failure.kind is Kind.INVALID:
                raise continuation.unusable() from error
            raise error.failure.passing() from error

    async def _write(self, *writes: Write) -> list[str]:
        """Writes one transaction. Returns the new ETags. Raises StoreFailed."""
        return await self._container.execute(PARTITION, writes)

    async def _put(self, block: AggregateBlock, *writes: Write) -> AggregateBlock:
        """Stores the block over its version, with other writes. Raises StoreFailed."""
        item = block_item(block, self._clock(), self._ttl)
        version, *_ = await self._write(Write.put(item, block.version or None), *writes)
        return replace(block, version=version)


def _of(aggregate: AggregateKey) -> Item:
    return {"@type": EVENT, "@aggregateType": aggregate.type, "@aggregateId": aggregate.id}


def _counted(block: AggregateBlock, more: int) -> AggregateBlock:
    """Changes the count by the number of events that this transaction creates or deletes (rule ``count-creates``)."""
    return replace(block, waiting=block.waiting + more)


def _unblocked_at_zero(block: AggregateBlock) -> AggregateBlock:
    """Frees a block whose count is 0 at the version that was read, without a query (rule ``end-at-zero``)."""
    return block.unblocked() if block.waiting == 0 else block


def _changed() -> PreconditionFailed:
    return PreconditionFailed("another instance or operator changed the parked aggregate: read it again")
