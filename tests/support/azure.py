"""Connections to the servers under test, and entities for one test, through the real SDKs."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient, DatabaseProxy
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.preflight.plan import Needed, needed
from cosmos_outbox.service import Service as Declared
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.message import session_of
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.transports import SESSIONS
from devstack.administration import administration_client
from devstack.cosmos.in_memory import CosmosInMemory
from devstack.testing import Service
from devstack.testing.eventually import WITHIN_SECONDS
from infra.bootstrap import service as contact_service
from tests.support import prompt

prompt.install()

CONTACTS = "contacts"
LEASES = "leases"
PARKED = "parked-events"
DIRECTORY = "directory"
SET_ASIDE = "set-aside"
CLAIMS = "claims"
EFFECTS = "effects"

_SETTINGS = {
    "COSMOS": "AccountEndpoint=http://localhost/;AccountKey=a2V5;",
    "SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=a2V5;",
}
"""Every container has the name that it has where no setting names another."""

_WITH_EFFECTS = Declared("effects", aggregates=[], names=contact_service.names)


@_WITH_EFFECTS.effect("effects", of="contact", container=EFFECTS)
async def _no_effect(event: Event) -> None:
    """The contact service has none; the tests of effects use its containers."""


MOST_PEEKED = 250
EMULATORS_LONGEST_WINDOW, EMULATORS_LONGEST_TTL = timedelta(minutes=5), timedelta(hours=1)
"""What Microsoft's Service Bus emulator takes, so that every topic of a test can be made there too.
https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator#usage-quotas
"""


def cosmos_connection(service: Service) -> str:
    return service.connection_string


def servicebus_connection(service: Service, *, admin: bool = False) -> str:
    return service.admin_connection_string if admin else service.connection_string


class Server(Protocol):
    """A Cosmos DB: a process, or one in memory."""

    @property
    def connection_string(self) -> str: ...


@runtime_checkable
class InMemory(Protocol):
    """One that can begin with what another of its kind had."""

    @property
    def account(self) -> CosmosInMemory: ...


_MADE: dict[str, tuple[str, bytes]] = {}
"""The database with these containers, and all of the account that it was made in."""


@asynccontextmanager
async def database_of(server: Server, *services: Declared) -> AsyncIterator[DatabaseProxy]:
    """A database of the test's own, with the containers of these services as a deployment makes them.

    Of two that have one container the first says how it is. It is deleted in the end: the more there are, the dearer is
    each change to what there is. In memory it is made once, and copied.
    """
    of_each = [each for one in reversed(services) for each in needed(one.settings(_SETTINGS), one)]
    needs = {each.name: each for each in of_each}.values()
    async with CosmosClient.from_connection_string(server.connection_string) as client:
        if not isinstance(server, InMemory):
            database = await _make(client, needs)
            yield database
            await client.delete_database(database)
        elif server.account.is_empty:
            made = f"{server.account._service.options.partitions} {needs}"
            if made not in _MADE:
                database = await _make(client, needs)
                _MADE[made] = database.id, server.account.content()
            else:
                name, content = _MADE[made]
                server.account.begin_with(content)
                database = client.get_database_client(name)
            yield database
        else:
            yield await _make(client, needs)


async def _make(client: CosmosClient, needs: Iterable[Needed]) -> DatabaseProxy:
    database = await client.create_database(f"db-{uuid.uuid4().hex[:12]}")
    for need in needs:
        await database.create_container(
            need.name,
            PartitionKey(need.partition_key),
            default_ttl=-1 if need.ttl_needed else None,
            indexing_policy=indexed(*need.queried, composite=need.composite),
        )
    return database


@asynccontextmanager
async def contacts_database(service: Service) -> AsyncIterator[DatabaseProxy]:
    """The containers of the contact service, and one for effects."""
    async with database_of(service, contact_service, _WITH_EFFECTS) as database:
        yield database


async def set_ttl(database: DatabaseProxy, name: str, seconds: int | None) -> None:
    """The container's default TTL; None: off, and nothing in it expires."""
    container = database.get_container_client(name)
    before = await container.read()
    key = before["partitionKey"]
    await database.replace_container(
        container,
        PartitionKey(key["paths"], kind=key["kind"], version=key["version"]),
        indexing_policy=before["indexingPolicy"],
        default_ttl=seconds,
    )


def indexed(*paths: str, composite: Sequence[Sequence[str]] = ()) -> dict[str, Any]:
    """An indexing policy of these properties and no others."""
    return {
        "indexingMode": "consistent",
        "includedPaths": [{"path": f"{path}/?"} for path in paths],
        "excludedPaths": [{"path": "/*"}],
        "compositeIndexes": [[{"path": path, "order": "ascending"} for path in each] for each in composite],
    }


@dataclass
class Topic:
    """A topic with duplicate detection, one session subscription, and what has been received from it so far."""

    service: Service
    name: str = field(default_factory=lambda: f"topic-{uuid.uuid4().hex[:12]}")
    subscription: str = "observer"
    partitioned: bool = False
    _kept: dict[tuple[str, str], list[ServiceBusReceivedMessage]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By the aggregate's type and id."""
    _turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """By session: one receiver at a time."""

    async def create(self, *subscriptions: str) -> None:
        connection = self.service.admin_connection_string
        async with administration_client(connection) as admin:
            await admin.create_topic(
                self.name,
                requires_duplicate_detection=True,
                enable_partitioning=self.partitioned,
                duplicate_detection_history_time_window=EMULATORS_LONGEST_WINDOW,
                default_message_time_to_live=EMULATORS_LONGEST_TTL,
            )
            for subscription in (self.subscription, *subscriptions):
                await admin.create_subscription(
                    self.name,
                    subscription,
                    requires_session=True,
                    default_message_time_to_live=EMULATORS_LONGEST_TTL,
                )

    async def delete(self) -> None:
        """An emulator has room for 50 topics."""
        async with administration_client(self.service.admin_connection_string) as admin:
            await admin.delete_topic(self.name)

    async def receive_all(
        self, aggregate: str, count: int, *, of: str = "contact"
    ) -> list[ServiceBusReceivedMessage]:
        """As :meth:`receive`, and no more is there: for what has been sent before it is called."""
        return await self.receive(aggregate, count, of=of, and_no_more=True)

    async def receive(
        self,
        aggregate: str,
        count: int,
        *,
        of: str = "contact",
        within: float = WITHIN_SECONDS,
        and_no_more: bool = False,
    ) -> list[ServiceBusReceivedMessage]:
        """Complete and return ``count`` messages of an aggregate, or as many as came in time.

        What is taken with them, of others in their session, is kept until somebody asks for it.
        """
        session = session_of(AggregateKey(of, aggregate), SESSIONS)
        kept = self._kept[of, aggregate]
        async with self._turns[session]:
            more = []
            if len(kept) < count or and_no_more:
                more = await self._take(session, lambda: len(kept) >= count, within)
            if and_no_more:
                none = len(kept) <= count and (of, aggregate) not in more
                assert none, f"more than {count} message(s) arrived"
            received, kept[:] = kept[:count], kept[count:]
        return received

    def _open(self, client: ServiceBusClient, **options: Any) -> ServiceBusReceiver:
        return client.get_subscription_receiver(self.name, self.subscription, **options)

    async def _take(self, session: str, enough: Callable[[], bool], within: float) -> list[tuple[str, str]]:
        """Of which aggregates there is more in the session then."""
        async with (
            servicebus_client(Connection(self.service.connection_string), None) as client,
            self._open(client, session_id=session, max_wait_time=within) as receiver,
        ):
            while not enough():
                # One at a time: with credit left over, the SDK may let a message be overtaken.
                messages = await receiver.receive_messages(1, max_wait_time=within)
                if not messages:
                    break
                for message in messages:
                    await receiver.complete_message(message)
                    self._kept[_aggregate_of(message)].append(message)
            return [_aggregate_of(each) for each in await receiver.peek_messages(MOST_PEEKED)]

    async def is_empty(self, aggregate: str, *, of: str = "contact") -> bool:
        """True when a receiver of the aggregate gets nothing within a second."""
        try:
            return not await self.receive(aggregate, 1, of=of, within=1.0)
        except OperationTimeoutError:
            return True


@dataclass
class Queue(Topic):
    """A queue with sessions in its place."""

    async def create(self, *subscriptions: str) -> None:
        assert not subscriptions, "a queue has none"
        async with administration_client(self.service.admin_connection_string) as admin:
            await admin.create_queue(
                self.name,
                requires_session=True,
                requires_duplicate_detection=True,
                duplicate_detection_history_time_window=EMULATORS_LONGEST_WINDOW,
                default_message_time_to_live=EMULATORS_LONGEST_TTL,
            )

    async def delete(self) -> None:
        async with administration_client(self.service.admin_connection_string) as admin:
            await admin.delete_queue(self.name)

    def _open(self, client: ServiceBusClient, **options: Any) -> ServiceBusReceiver:
        return client.get_queue_receiver(self.name, **options)


def _aggregate_of(message: ServiceBusReceivedMessage) -> tuple[str, str]:
    properties = message.application_properties or {}
    kind, name = (properties[each] for each in (b"aggregateType", b"cloudEvents_subject"))
    assert isinstance(kind, bytes)
    assert isinstance(name, bytes)
    return kind.decode(), name.decode()
