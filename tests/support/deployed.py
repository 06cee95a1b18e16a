"""The contact service in a database and with a topic of a test's own, with its relay at work when a test wants it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.cosmos.aio import DatabaseProxy

from cosmos_outbox.service import Wired
from cosmos_outbox.worker import relay as relay_worker
from devstack.testing import Service
from tests.support.azure import Topic, contacts_database
from tests.support.use_cases import wire

SUBSCRIPTION = "directory"


@dataclass
class Deployed:
    """What a test works on."""

    environment: dict[str, str]
    database: DatabaseProxy
    topic: Topic
    application: Wired


@asynccontextmanager
async def deployed(cosmos: Service, servicebus: Service, **settings: str) -> AsyncIterator[Deployed]:
    """The service, wired with settings that lead to it, and with ``settings``."""
    topic = Topic(servicebus)
    await topic.create(SUBSCRIPTION)
    async with contacts_database(cosmos) as database:
        environment = {
            "COSMOS": cosmos.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
            "SERVICEBUS_SUBSCRIPTION": SUBSCRIPTION,
            "RELAY_SEND_SECONDS": "5",
            "RELAY_POLL_DELAY_MS": "50",
        } | settings
        application = wire(environment)
        async with application.outbox.resources:
            yield Deployed(environment, database, topic, application)
    await topic.delete()


@asynccontextmanager
async def relaying(environment: Mapping[str, str]) -> AsyncIterator[None]:
    """A relay of its own works until the block ends."""
    stop = asyncio.Event()
    relay = asyncio.create_task(relay_worker.run(wire(environment), stop))
    yield
    stop.set()
    await relay
