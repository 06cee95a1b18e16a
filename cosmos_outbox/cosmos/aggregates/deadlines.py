"""The documents of aggregates that are due are found by one query over all partitions, at any number of aggregates.

What a query finds may be old, and what it misses is found by the next one: whoever asks decides by the state.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item
from cosmos_outbox.cosmos.aggregates.due import DUE, due_field, due_time, text_of_now
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.deadlines import DueDocument

LIST_DUE = "SELECT c.id, c.partitionKey, c.type, c.due FROM c WHERE c.due <= @now"
_PAGE = 100
_CHANGED = {Kind.STALE, Kind.MISSING}


@dataclass(frozen=True)
class CosmosDueDocuments:
    """See :class:`cosmos_outbox.outbox.deadlines.DueDocuments`."""

    container: Container

    async def pages(self, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        """Those that are due. Raises Throttled, Unavailable, Misconfigured."""
        token: str | None = None
        while True:
            try:
                items, token = await self.container.page(LIST_DUE, {"@now": text_of_now(now)}, _PAGE, token)
            except StoreFailed as error:
                raise error.failure.error() from error
            yield [found for item in items if (found := _found(item)) is not None]
            if token is None:
                return

    async def correct(self, found: DueDocument, kind: type[Aggregate[Any]]) -> None:
        """Write the field alone, at the version that was read: no event tells of it. Raises Throttled, Unavailable."""
        try:
            item = await self.container.read(found.id, found.partition_key)
            if item is None:
                return
            wanted = due_field(kind, aggregate_from_item(kind, item).aggregate.state)
            plain = {name: value for name, value in item.items() if not name.startswith("_") and name != DUE}
            if wanted.get(DUE) != item.get(DUE):
                write = Write.replace(plain | wanted, str(item["_etag"]))
                await self.container.execute(found.partition_key, [write])
        except StoreFailed as error:
            if error.failure.kind not in _CHANGED:
                raise error.failure.error() from error


def _found(item: Mapping[str, Any]) -> DueDocument | None:
    try:
        return DueDocument(str(item["type"]), item["id"], item["partitionKey"], due_time(item[DUE]))
    except (KeyError, TypeError, ValueError):  # not ours
        return None
