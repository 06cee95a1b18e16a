"""Reading changes nothing: the unit of work that asked keeps track of the aggregates that it changes."""

from dataclasses import dataclass
from typing import Any, TypeVar

from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item, request_from_item, request_id
from cosmos_outbox.cosmos.aggregates.listing import ListQuery
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.selection import Selection
from cosmos_outbox.outbox.unit_of_work import Page, RequestRecord, Versioned

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class AggregateReader:
    """Reads the aggregates of one container; ``scope`` names the container in continuation tokens."""

    container: Container
    scope: str

    async def get(self, kind: type[A], aggregate_id: str, partition_key: str) -> Versioned[A]:
        """The aggregate and its version. Raises AggregateNotFound, Throttled, Unavailable."""
        return await self._get(kind, aggregate_id, partition_key, consistent=False)

    async def newest(self, kind: type[A], aggregate_id: str, partition_key: str) -> Versioned[A]:
        """As :meth:`get`, but no committed write is missed. Raises as :meth:`get` does."""
        return await self._get(kind, aggregate_id, partition_key, consistent=True)

    async def _get(
        self, kind: type[A], aggregate_id: str, partition_key: str, *, consistent: bool
    ) -> Versioned[A]:
        try:
            item = await self.container.read(aggregate_id, partition_key, consistent=consistent)
        except StoreFailed as error:
            raise error.failure.error() from error
        if item is not None and item.get("type") == kind.aggregate_type:
            stored = aggregate_from_item(kind, item)
            if not stored.aggregate.deleted:
                return stored
        raise AggregateNotFound(f"there is no {kind.aggregate_type} {aggregate_id}")

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection
    ) -> Page[A]:
        """At most ``size`` aggregates. Raises UnknownContinuation, Throttled, Unavailable, Misconfigured."""
        scope = f"{self.scope}/{ListQuery(kind, selection, None).scope}"
        token = continuation.unseal(scope, continuation_token) if continuation_token else None
        query = ListQuery(kind, selection, token)
        if selection.ids is not None and not selection.ids:
            return Page([], None)
        try:
            items = await self.container.select(query, size + 1)
        except StoreFailed as error:
            raise error.failure.error() from error
        found = [aggregate_from_item(kind, item) for item in items[:size]]
        more = continuation.seal(scope, query.position(items[size - 1])) if len(items) > size else None
        return Page([each.aggregate for each in found], more, [each.etag for each in found])


class CosmosRequestRecords:
    """The records of requests, each in the partition of the aggregate that the request created."""

    def __init__(self, container: Container, tracked: list[RequestRecord[Any]]) -> None:
        self._container = container
        self._tracked = tracked

    def add(self, record: RequestRecord[Any]) -> None:
        """Store the record in the transaction of the commit."""
        self._tracked.append(record)

    async def get(self, aggregate: A, name: str, *, newest: bool = False) -> RequestRecord[A] | None:
        """The record, or None, which proves nothing unless ``newest``. Raises Throttled, Unavailable."""
        item_id, partition_key = request_id(name), aggregate.partition_key
        try:
            item = await self._container.read(item_id, partition_key, consistent=newest)
        except StoreFailed as error:
            raise error.failure.error() from error
        return None if item is None else request_from_item(type(aggregate), item)
