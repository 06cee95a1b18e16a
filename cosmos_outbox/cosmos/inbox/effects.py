"""The effects of one aggregate are one item, created or replaced at the version that was read.

An item with something open or running has no TTL (``open-stays``): nobody else tells of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.relay.marker_documents import marker_id
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.item import KEEP_FOR_EVER
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.effect import EffectItem
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.inbox.stored import item_document, item_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation
from cosmos_outbox.telemetry.tracing import writing

_ID = "effects"
_ALL = "SELECT * FROM c WHERE c.subscriber = @subscriber AND IS_DEFINED(c.unfinished)"
_UNFINISHED = "SELECT * FROM c WHERE c.subscriber = @subscriber AND c.unfinished = true"


@dataclass(frozen=True)
class CosmosEffects:
    """See :class:`cosmos_outbox.inbox.effect.EffectItems`. Several subscribers may have one container."""

    container: Container
    subscriber: str
    ttl_seconds: int

    async def read(self, key: AggregateKey, *, fenced: bool) -> EffectItem | None:
        """An aggregate's item. Raises StoreAway."""
        partition = self._partition(key)
        try:
            if fenced:
                await self.container.fence(partition)
            item = await self.container.read(_ID, partition)
        except StoreFailed as error:
            raise store_away(error.failure) from error
        return None if item is None else item_of(item, str(item["_etag"]))

    async def write(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        """Store it over its version. Raises RecordChanged, StoreAway."""
        document = {
            "id": _ID,
            "partitionKey": self._partition(key),
            "type": "effects",
            "subscriber": self.subscriber,
            "aggregateType": key.type,
            "aggregateId": key.id,
            "unfinished": not item.expires,
            **item_document(item),
            "ttl": self.ttl_seconds if item.expires else KEEP_FOR_EVER,
        }
        write = Write.create(document) if item.version is None else Write.replace(document, item.version)
        try:
            with writing("effects"):
                [version] = await self.container.execute(self._partition(key), [write])
        except StoreFailed as error:
            if error.failure.kind in (Kind.CONFLICT, Kind.STALE, Kind.MISSING):
                raise RecordChanged(f"the effects of {key} were changed: read them again") from error
            raise store_away(error.failure) from error
        return replace(item, version=version)

    async def page(
        self, size: int, position: str | None, *, unfinished: bool
    ) -> tuple[Sequence[tuple[AggregateKey, EffectItem]], str | None]:
        """A page of them, or of those with something open or running. Raises UnknownContinuation, StoreAway."""
        try:
            items, position = await self.container.page(
                _UNFINISHED if unfinished else _ALL, {"@subscriber": self.subscriber}, size, position
            )
        except StoreFailed as error:
            if position is not None and error.failure.kind is Kind.INVALID:
                raise continuation.unusable() from error
            raise store_away(error.failure) from error
        return [
            (AggregateKey(item["aggregateType"], item["aggregateId"]), item_of(item, str(item["_etag"])))
            for item in items
        ], position

    def _partition(self, key: AggregateKey) -> str:
        return f"{self.subscriber}/{marker_id(key)}"
