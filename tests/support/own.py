"""Services whose documents are a team's own, in containers with a partition key path, or several, of their own."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.composition.writer import Outbox
from cosmos_outbox.cosmos.existing.transaction import Transaction
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.names import ExistingContainer, Names
from devstack.testing import Service as Server
from tests.support.azure import database_of

BOOKINGS = "bookings"
SEQUENCE = "/meta/lastSequence"
AGGREGATES = {"booking": SEQUENCE, "note": None}
ORIGIN = Origin("request-1")


def declared(*paths: str) -> Service:
    """A service with a container of these partition key paths."""
    names = Names(database="unknown", container=BOOKINGS, topic="unknown")
    return Service("bookings", names=names, own=ExistingContainer(list(paths), AGGREGATES))


TENANT, HIERARCHICAL, NESTED = (
    declared("/tenantId"),
    declared("/tenantId", "/bookingId"),
    declared("/owner/tenantId"),
)


UNREACHABLE = {
    "COSMOS": "AccountEndpoint=http://localhost:1/;AccountKey=a2V5;",
    "SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=a2V5;",
    "SERVICEBUS_TOPIC": "none",
}
"""Settings by which nothing can be reached."""


@dataclass
class World:
    """A service over a real store. A booking's id is ``b-1``, unless a test says another."""

    service: Service
    wired: Wired
    proxy: ContainerProxy
    environment: Mapping[str, str]

    @property
    def outbox(self) -> Outbox:
        return self.wired.outbox

    @property
    def container(self) -> Container:
        return self.outbox.container(BOOKINGS)

    def key(self, tenant: Any = "acme", booking: str = "b-1") -> Any:
        return [tenant, booking] if len(self.service.paths.paths) > 1 else tenant

    def document(self, item_id: str, *, tenant: Any = "acme", booking: str = "b-1", **more: Any) -> Item:
        return {"id": item_id, **self.service.paths.fields(self.key(tenant, booking)), **more}

    def booking(self, item_id: str = "b-1", last: int | None = None, **more: Any) -> Item:
        """The document of a booking, as a team has it, with its last sequence."""
        meta = {} if last is None else {"meta": {"lastSequence": last}}
        return self.document(item_id, type="booking", booking=item_id, **meta, **more)

    def transaction(self, tenant: Any = "acme", booking: str = "b-1") -> Transaction:
        return self.outbox.transaction(self.key(tenant, booking), origin=ORIGIN)

    async def run(self, *steps: Callable[[Transaction], object], tenant: Any = "acme") -> Transaction:
        """A transaction of these steps."""
        async with self.transaction(tenant) as tx:
            for step in steps:
                step(tx)
        return tx

    async def read(self, item_id: str, tenant: Any = "acme", booking: str = "b-1") -> Item:
        """Through the team's own client."""
        return dict(await self.proxy.read_item(item_id, self.key(tenant, booking)))

    async def all(self) -> list[Item]:
        """Everything that is stored in the container."""
        return [dict(item) async for item in self.proxy.read_all_items()]

    async def ids(self) -> set[str]:
        return {item["id"] for item in await self.all()}

    async def events(self) -> list[Item]:
        return [item for item in await self.all() if item.get("type") == "domainEvent"]

    async def book(self, item_id: str = "b-1", tenant: Any = "acme") -> str | None:
        """A new booking, and its event."""
        async with self.transaction(tenant, item_id) as tx:
            tx.create(self.document(item_id, tenant=tenant, booking=item_id, type="booking", seats=1))
            tx.event("BookingMade", of=("booking", item_id), data={"seats": 1})
        return tx.etag(item_id)

    async def move(self, *actions: str, item_id: str = "b-1", tenant: Any = "acme") -> str | None:
        """One transaction that raises these events."""
        item = await self.read(item_id, tenant, item_id)
        async with self.transaction(tenant, item_id) as tx:
            tx.replace(item | {"seats": item["seats"] + 1}, if_match=item["_etag"])
            for action in actions or ("BookingMoved",):
                tx.event(action, of=("booking", item_id), data={"seats": item["seats"] + 1})
        return tx.etag(item_id)


@asynccontextmanager
async def world_of(
    service: Service, cosmos: Server, servicebus: str | None = None, topic: str = "none"
) -> AsyncIterator[World]:
    """A world with a database of its own. Without a Service Bus nothing can be sent."""
    async with database_of(cosmos, service) as database:
        environment = {
            **UNREACHABLE,
            "COSMOS": cosmos.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS_TOPIC": topic,
            **({"SERVICEBUS": servicebus} if servicebus else {}),
        }
        wired = service.wire(environment)
        async with wired.resources, CosmosClient.from_connection_string(cosmos.connection_string) as client:
            proxy = client.get_database_client(database.id).get_container_client(BOOKINGS)
            yield World(service, wired, proxy, environment)
