"""The partition of the parking lot: every read and write of it, each with an answer that the lot can go by.

A read raises Throttled or Unavailable. A write raises StoreFailed, since what a refusal means depends on the write.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.lists import continuation

CHANGED = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
"""Refusals of a transaction that say that others changed something first, or that an earlier attempt was stored."""

_IDS_AT_ONCE = 200
ITEMS_AT_ONCE = 1000


@dataclass(frozen=True)
class ParkedPartition:
    """One logical partition."""

    container: Container
    partition_key: str

    async def fence(self) -> None:
        """Reads that follow miss no write that was committed before."""
        try:
            await self.container.fence(self.partition_key)
        except StoreFailed as error:
            raise error.failure.passing() from error

    async def read(self, item_id: str) -> Item | None:
        """An item; None when this read sees none."""
        try:
            return await self.container.read(item_id, self.partition_key)
        except StoreFailed as error:
            raise error.failure.passing() from error

    async def read_many(self, ids: Sequence[str]) -> list[Item]:
        """Those of the items that are there, in any order."""
        found: list[Item] = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            names = {f"@id{number}": each for number, each in enumerate(ids[start : start + _IDS_AT_ONCE])}
            query = f"SELECT * FROM c WHERE c.id IN ({', '.join(names)})"  # noqa: S608 - only names of parameters
            found += [item async for item in self.query(query, names)]
        return found

    async def query(
        self, query: str, parameters: Mapping[str, Any], *, size: int = ITEMS_AT_ONCE
    ) -> AsyncIterator[Item]:
        """All items of a query, page by page."""
        token: str | None = None
        while True:
            items, token = await self.page(query, parameters, size, token)
            for item in items:
                yield item
            if token is None:
                return

    async def page(
        self, query: str, parameters: Mapping[str, Any], size: int, token: str | None
    ) -> tuple[list[Item], str | None]:
        """One page of a query, and the token of the next. Raises UnknownContinuation for a token that is none."""
        try:
            return await self.container.page(query, parameters, size, token, partition_key=self.partition_key)
        except StoreFailed as error:
            if token and error.failure.kind is Kind.INVALID:
                raise continuation.unusable() from error
            raise error.failure.passing() from error

    async def write(self, *writes: Write) -> list[str]:
        """One transaction. Returns the new ETags. Raises StoreFailed."""
        return await self.container.execute(self.partition_key, writes)
