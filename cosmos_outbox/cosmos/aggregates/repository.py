"""Reading changes nothing: the unit of work that asked keeps track of the aggregates that it changes."""

from dataclasses import dataclass
from typing import Any, TypeVar

from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item, request_from_item, request_id
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.unit_of_work import Page, RequestRecord, Versioned

A = TypeVar("A", bound=Aggregate[Any])

LIST = "SELECT * FROM c WHERE c.type = @type AND (NOT IS_DEFINED(c.data.deleted) OR c.data.deleted = false)"
_EMPTY_PAGES = 5


@dataclass(frozen=True)
class AggregateReader:
    """Reads the aggregates of one container; ``scope`` names the container in continuation tokens."""

    container: Container
    scope: str

    async def get(self, kind: type[A], aggregate_id: str, partition_key: str) -> Versioned[A]:
        """The aggregate and its version. Raises AggregateNotFound, Throttled, Unavailable."""
        try:
            item = await self.container.read(aggregate_id, partition_key)
        except StoreFailed as error:
            raise error.failure.error() from error
        if item is not None and item.get("type") == kind.aggregate_type:
            stored = aggregate_from_item(kind, item)
            if not stored.aggregate.deleted:
                return stored
        raise AggregateNotFound(f"there is no {kind.aggregate_type} {aggregate_id}")

    async def newest(self, kind: type[A], aggregate_id: str, partition_key: str) -> Versioned[A]:
        """As :meth:`get`, but behind a fence: no committed write is missed. Raises as :meth:`get` does."""
        try:
            there = await self.container.exists(aggregate_id, partition_key)
        except StoreFailed as error:
            raise error.failure.error() from error
        if not there:
            raise AggregateNotFound(f"there is no {kind.aggregate_type} {aggregate_id}")
        return await self.get(kind, aggregate_id, partition_key)

    async def page(self, kind: type[A], size: int, continuation_token: str | None) -> Page[A]:
        """At most ``size`` aggregates. Raises UnknownContinuation, Throttled, Unavailable."""
        scope = f"{self.scope}/{kind.aggregate_type}"
        token = continuation.unseal(scope, continuation_token) if continuation_token else None
        for _ in range(_EMPTY_PAGES):  # the store may answer with an empty page and a token: read on
            try:
                items, token = await self.container.page(LIST, {"@type": kind.aggregate_type}, size, token)
            except StoreFailed as error:
                if continuation_token and error.failure.kind is Kind.INVALID:
                    raise continuation.unusable() from error
                raise error.failure.error() from error
            if items or token is None:
                break
        found = [aggregate_from_item(kind, item).aggregate for item in items]
        return Page(found, continuation.seal(scope, token) if token else None)


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
            if newest and not await self._container.exists(item_id, partition_key):
                return None
            item = await self._container.read(item_id, partition_key)
        except StoreFailed as error:
            raise error.failure.error() from error
        return None if item is None else request_from_item(type(aggregate), item)
