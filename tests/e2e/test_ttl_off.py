"""With a container's TTL off nothing in it expires: the relay forwards what is overdue, as in an emergency."""

import asyncio
import time
from dataclasses import replace

import pytest

from cosmos_outbox.worker import relay as relay_worker
from devstack.testing import Service, eventually
from tests.support.azure import Topic, contacts_database, set_ttl
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.use_cases import contacts_of, wire

TTL_SECONDS = 2


async def test_nothing_expires_until_the_relay_has_forwarded_it(
    cosmos_server: Service, servicebus_server: Service, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(servicebus_server)
    await topic.create()
    async with contacts_database(cosmos_server) as database:
        settings = {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": topic.service.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
            "EVENT_TTL_SECONDS": str(TTL_SECONDS),
            "RELAY_POLL_DELAY_MS": "50",
        }
        container = database.get_container_client("contacts")

        async def stored() -> list[int]:
            items = [item async for item in container.read_all_items()]
            return [item["_ts"] for item in items if item["type"] == "domainEvent"]

        await set_ttl(database, "contacts", None)
        application = wire(settings)
        async with application.outbox.resources:
            contact = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id
            [at] = await stored()
            await eventually(lambda: time.time() > at + TTL_SECONDS + 1)
            assert await stored() == [at]
            await replace(application.operator.observer, mending_patience_seconds=0).watch()
        assert "nothing in the container expires, since its default TTL is off" in caplog.text

        stop = asyncio.Event()
        relay = asyncio.create_task(relay_worker.run(wire(settings), stop))
        [message] = await topic.receive(str(contact), 1)
        assert message.subject == "ContactCreatedEvent"
        stop.set()
        await relay

        async def nothing_is_left() -> bool:
            return await stored() == []

        await set_ttl(database, "contacts", -1)
        await eventually(nothing_is_left)
    await topic.delete()
