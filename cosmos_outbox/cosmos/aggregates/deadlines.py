"""The documents that are due are found by one query over all partitions, at any number of documents.

What a query finds may be old, and what it misses is found by the next one: whoever asks decides by the state.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item
from cosmos_outbox.cosmos.aggregates.due import DUE, due_field, due_time, text_of_now
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import field, parts
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.deadlines import DueDocument, due_origin, fall_due
from cosmos_outbox.outbox.errors import AggregateNotFound

_PAGE = 100
_CHANGED = {Kind.STALE, Kind.MISSING}


class DueQuery(str):
    """A query for the documents with a time, at ``path``, that has come. Of each it gets what the paths begin with."""

    path: str

    @classmethod
    def of(cls, path: str, *beside: str) -> Self:
        """``beside``: paths of what else is needed."""
        names = dict.fromkeys(parts(each)[0] for each in ("/id", path, *beside))
        fields = ", ".join(field("c", f"/{name}") for name in names)
        made = cls(f"SELECT {fields} FROM c WHERE {field('c', path)} <= @now")  # noqa: S608 - declared paths
        made.path = path
        return made


LIST_DUE = DueQuery.of(f"/{DUE}", "/partitionKey", "/type")


async def due_items(container: Container, query: DueQuery, now: datetime) -> AsyncIterator[Sequence[Item]]:
    """What the query finds, page by page. Raises Throttled, Unavailable, Misconfigured."""
    token: str | None = None
    while True:
        try:
            items, token = await container.page(query, {"@now": text_of_now(now)}, _PAGE, token)
        except StoreFailed as error:
            raise error.failure.error() from error
        yield items
        if token is None:
            return


@dataclass(frozen=True)
class DueAggregates:
    """See :class:`cosmos_outbox.outbox.deadlines.DueDocuments`."""

    container: Container
    aggregates: Aggregates
    kinds: Mapping[str, type[Aggregate[Any]]]
    """By their types: those that can be due."""

    async def pages(self, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        """Those that are due. Raises Throttled, Unavailable, Misconfigured."""
        async for items in due_items(self.container, LIST_DUE, now):
            yield [found for found in map(_found, items) if found is not None and found.kind in self.kinds]

    async def meet(self, found: DueDocument, at: datetime) -> bool:
        """Call ``on_due`` of the aggregate, in a change as any other. Raises as the port tells."""
        kind = self.kinds[found.kind]
        try:
            receipt = await self.aggregates.change(
                kind,
                found.id,
                lambda aggregate: fall_due(aggregate, at),
                due_origin(),
                partition_key=found.partition_key,
            )
        except AggregateNotFound:
            return False
        if not receipt.events:
            await self._correct(found, kind)
        return bool(receipt.events)

    async def _correct(self, found: DueDocument, kind: type[Aggregate[Any]]) -> None:
        """Let the document say when the aggregate is due, if it does not: by a rule that was made later, say.

        The field alone is written, at the version that was read: no event tells of it. Raises Throttled, Unavailable.
        """
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
