"""The store of contacts in memory that the test kit ships, where a test needs no service around it."""

from dataclasses import dataclass, field
from typing import Any

from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.aggregates.claims import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.unit_of_work import ETag, Origin
from cosmos_outbox.testing.documents import MemoryContainer
from tests.support.feed import EVENTS

LIFETIME_SECONDS = 600


@dataclass
class MemoryStore:
    """Opens units of work over a container in memory."""

    container: MemoryContainer = field(default_factory=MemoryContainer)

    def __call__(self, origin: Origin) -> CosmosUnitOfWork:
        return CosmosUnitOfWork(self.container, "test", origin, Lifetimes(LIFETIME_SECONDS, LIFETIME_SECONDS))

    @property
    def events(self) -> list[OutboxEvent]:
        read = (EVENTS.event(item) for item in self.container.documents.written)
        return [event for event in read if isinstance(event, OutboxEvent)]

    @property
    def documents(self) -> list[Item]:
        return list(self.container.documents.all())

    def data(self, key: AggregateKey) -> dict[str, Any]:
        """What is stored of an aggregate."""
        return dict(self._item(key)["data"])

    def etag(self, key: AggregateKey) -> ETag:
        return str(self._item(key)["_etag"])

    def _item(self, key: AggregateKey) -> Item:
        item = self.container.documents.read(key.id, key.id)
        assert item is not None, f"{key} is not stored"
        return item


def claims_in_memory(lifetime_seconds: int = LIFETIME_SECONDS) -> CosmosClaims:
    return CosmosClaims(MemoryContainer(), lifetime_seconds)
