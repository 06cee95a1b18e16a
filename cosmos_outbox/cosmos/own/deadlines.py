"""What is due in a team's own document happens once: the document is written at the version that says that it is due.

What a query found is a hint, and so is a first read: what happens is decided by the document, in a transaction that
replaces it at its version. It is then due later, or never. A process that dies, or never learns what became of its
batch, leaves a document that says which of the two it was.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from cosmos_outbox.cosmos.aggregates.deadlines import DueQuery, due_items
from cosmos_outbox.cosmos.own.due import DueTimes
from cosmos_outbox.cosmos.own.transaction import Transactions
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.aggregates import ATTEMPTS
from cosmos_outbox.outbox.deadlines import DueDocument, NotSettled, due_origin
from cosmos_outbox.outbox.errors import ConcurrentChange, Throttled, Unavailable
from cosmos_outbox.outbox.unit_of_work import Origin


@dataclass(frozen=True)
class OwnDue:
    """See :class:`cosmos_outbox.outbox.deadlines.DueDocuments`."""

    transactions: Transactions

    async def pages(self, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        """Those that are due, of one path after another. Raises Throttled, Unavailable, Misconfigured."""
        container = self.transactions.container
        for path in self._times.paths:
            query = DueQuery.of(path, *container.paths.paths)
            async for items in due_items(container, query, now):
                yield [found for each in items if (found := self._found(each, path, now)) is not None]

    async def meet(self, found: DueDocument, at: datetime) -> bool:
        """Let happen what is declared for the path. Raises as the port tells."""
        origin, newest, failed_at = due_origin(), False, ""
        for _ in range(ATTEMPTS):
            item = await self._read(found, newest=newest)
            try:
                if item is not None and await self._happen(found, item, at, origin):
                    return True
                if newest:
                    return False
            except (Throttled, Unavailable):
                raise
            except Exception:
                if item is None or item["_etag"] == failed_at:
                    raise
                failed_at = item["_etag"]
            newest = True  # what is so of an old state need not be so of the newest
        raise ConcurrentChange(f"document {found.id} was changed by others at each of {ATTEMPTS} attempts")

    async def _happen(self, found: DueDocument, item: Item, at: datetime, origin: Origin) -> bool:
        """Whether it was due. Raises whatever a transaction raises, NotSettled, and what the declared function does."""
        due = self._due(item, found.kind)
        if due is None or due > at:
            return False
        async with self.transactions(found.partition_key, origin=origin) as tx:
            self.transactions.declared.due[found.kind](dict(item), tx, at)
            _check_settled(item, due, tx.written(found.id), found.kind, self._times)
        return True

    @property
    def _times(self) -> DueTimes:
        return self.transactions.times

    def _found(self, item: Item, path: str, now: datetime) -> DueDocument | None:
        key = self.transactions.container.paths.of(item)
        if key is None:  # in no partition that a transaction can be in
            return None
        try:
            due = self._times.of(item, path)
        except ValueError:  # told where it is met
            due = now
        return DueDocument(path, item["id"], key, due or now)

    def _due(self, item: Item, path: str) -> datetime | None:
        try:
            return self._times.of(item, path)
        except ValueError as error:
            raise NotSettled(str(error)) from None

    async def _read(self, found: DueDocument, *, newest: bool) -> Item | None:
        container = self.transactions.container
        try:
            if newest:
                await container.fence(found.partition_key)
            return await container.read(found.id, found.partition_key)
        except StoreFailed as error:
            raise error.failure.error() from error


def _check_settled(item: Item, due: datetime, write: Write | None, path: str, times: DueTimes) -> None:
    """Raise NotSettled, before anything is stored."""
    if write is not None and write.if_match == item["_etag"]:
        after = times.of(write.item, path) if write.kind == "replace" else None
        if write.kind == "delete" or (write.kind == "replace" and (after is None or after > due)):
            return
    raise NotSettled(
        f"replace the document that is due, with if_match its _etag, and without {path}, or with a later time"
    )
