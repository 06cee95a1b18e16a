"""The contacts' store and the parking lot over devstack in memory, where a test needs no service around them."""

import platform
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import ETag, Origin
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.testing.clock import Clock
from cosmos_outbox.testing.cosmos import MemoryAccount, account
from devstack import app_file
from tests.support.feed import EVENTS

platform.platform()  # the SDK looks for it once in a process, and a test in virtual time may start no process

L = TypeVar("L", bound=CosmosParkingLot)

LIFETIME_SECONDS = 600
_DATABASE, _CONTACTS, _CLAIMS, _PARKED = "crm", "contacts", "claims", "parked"
_DECLARED = app_file.Cosmos(
    containers=[
        app_file.Container(database=_DATABASE, name=each, partition_key=["/partitionKey"], ttl=-1)
        for each in (_CONTACTS, _CLAIMS, _PARKED)
    ]
)


@dataclass(frozen=True)
class MemoryStore:
    """Opens units of work."""

    account: MemoryAccount
    container: Container
    claims: CosmosClaims

    def __call__(self, origin: Origin) -> CosmosUnitOfWork:
        return CosmosUnitOfWork(self.container, "test", origin, Lifetimes(LIFETIME_SECONDS, LIFETIME_SECONDS))

    @property
    def events(self) -> Sequence[OutboxEvent]:
        read = map(EVENTS.event, self.documents)
        return [event for event in read if isinstance(event, OutboxEvent)]

    @property
    def documents(self) -> list[Item]:
        return self.account.cosmos.items(_DATABASE, _CONTACTS)

    def data(self, key: AggregateKey) -> dict[str, Any]:
        """What is stored of an aggregate."""
        return dict(self._item(key)["data"])

    def etag(self, key: AggregateKey) -> ETag:
        return str(self._item(key)["_etag"])

    def _item(self, key: AggregateKey) -> Item:
        return next(each for each in self.documents if each["id"] == key.id)


@asynccontextmanager
async def _contacts() -> AsyncIterator[tuple[MemoryAccount, CosmosClient]]:
    with account(Clock()) as made:
        await made.make(_DECLARED)
        async with made.client(Connection(made.connection_string)) as client:
            yield made, client


@asynccontextmanager
async def memory_lot(kind: type[L]) -> AsyncIterator[L]:
    """An empty parking lot."""
    async with _contacts() as (_, client):
        container = Container(client, _DATABASE, _PARKED)
        yield kind(container, "test", ParkedDocuments(EVENTS), ttl_seconds=LIFETIME_SECONDS)


def committed(lot: CosmosParkingLot) -> CosmosOriginals:
    """What the relay compares its events with: the feed has them as they were committed, and nothing else is stored."""
    return CosmosOriginals(lot._container, EVENTS)


@asynccontextmanager
async def memory_store(kind: type[Container] = Container) -> AsyncIterator[MemoryStore]:
    """An empty store; ``kind``: of the contacts' container."""
    async with _contacts() as (made, client):
        claims = CosmosClaims(Container(client, _DATABASE, _CLAIMS), LIFETIME_SECONDS)
        yield MemoryStore(made, kind(client, _DATABASE, _CONTACTS), claims)
