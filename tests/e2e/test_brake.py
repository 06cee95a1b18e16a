"""With the brake on nothing expires, the write half goes on, and the relay forwards all of it afterwards."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.cosmos.aio import DatabaseProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_outbox.cli import brake
from cosmos_outbox.worker import relay as relay_worker
from devstack.testing import Service, eventually
from domain.values import ContactDetails
from infra.bootstrap import Application, wire
from tests.support.azure import Topic, contacts_database
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.use_cases import contacts_of

TTL_SECONDS = 4


@pytest.fixture
async def database(cosmos_server: Service) -> AsyncIterator[DatabaseProxy]:
    async with contacts_database(cosmos_server) as made:
        yield made


@pytest.fixture
async def topic(servicebus_server: Service) -> AsyncIterator[Topic]:
    topic = Topic(servicebus_server)
    await topic.create()
    yield topic
    await topic.delete()


@pytest.fixture
def environment(database: DatabaseProxy, topic: Topic, cosmos_server: Service) -> dict[str, str]:
    return {
        "COSMOS": cosmos_server.connection_string,
        "COSMOS_DATABASE": database.id,
        "SERVICEBUS": topic.service.connection_string,
        "SERVICEBUS_TOPIC": topic.name,
        "EVENT_TTL_SECONDS": str(TTL_SECONDS),
        "RELAY_POLL_DELAY_MS": "50",
    }


@asynccontextmanager
async def relaying(environment: dict[str, str]) -> AsyncIterator[Application]:
    stop = asyncio.Event()
    service = wire(environment)
    relay = asyncio.create_task(relay_worker.run(service, stop))
    yield service
    stop.set()
    await relay


@asynccontextmanager
async def application_of(environment: dict[str, str]) -> AsyncIterator[Application]:
    application = wire(environment)
    async with application.outbox.resources:
        yield application


async def run(environment: dict[str, str], *arguments: str) -> int:
    return await asyncio.to_thread(brake.main, arguments, environment)


async def events(database: DatabaseProxy) -> list[dict[str, Any]]:
    container = database.get_container_client("contacts")
    return [dict(item) async for item in container.read_all_items() if item["type"] == "domainEvent"]


async def test_nothing_expires_until_the_relay_has_forwarded_it(
    environment: dict[str, str],
    database: DatabaseProxy,
    topic: Topic,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with relaying(environment) as service:  # makes the leases
        await eventually(lambda: has_leases(service))
    before = await database.get_container_client("contacts").read()
    assert await run(environment, "status") == 0
    assert await run(environment, "stop") == 0
    stopped = await database.get_container_client("contacts").read()
    assert "defaultTtl" not in stopped
    assert stopped["indexingPolicy"] == before["indexingPolicy"]
    assert stopped["partitionKey"] == before["partitionKey"]

    async with application_of(environment) as application:
        contact = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id
        [created] = await events(database)
        await eventually(lambda: time.time() > created["_ts"] + TTL_SECONDS + 1)

        # Later than its TTL the event is there, and writers go on.
        assert [each["id"] for each in await events(database)] == [created["id"]]

        def described(before: ContactDetails) -> ContactDetails:
            return before.model_copy(update={"description": "while the relay was away"})

        await contacts_of(application).revise(contact, described, ORIGIN)
    capsys.readouterr()
    assert await run(environment, "resume") == 1
    assert "not resumed: events wait for the relay, the oldest for" in capsys.readouterr().out
    async with application_of(environment) as late:
        await late.outbox.observer.watch()
    assert "nothing in the container expires, since its default TTL is off" in caplog.text
    assert await run(environment, "status") == 1
    assert "1 document(s) would expire at once" in capsys.readouterr().out

    async with relaying(environment):
        got = await topic.receive(str(contact), 2)
        assert [message.subject for message in got] == [
            "ContactCreatedEvent",
            "ContactDescriptionUpdatedEvent",
        ]
        await eventually(lambda: resumed(environment))
    after = await database.get_container_client("contacts").read()
    assert after["defaultTtl"] == -1
    assert after["indexingPolicy"] == before["indexingPolicy"]
    await eventually(lambda: none_left(database))
    assert await run(environment, "status") == 0


async def all_is_forwarded(service: Application) -> bool:
    return not await service.outbox.observer.oldest_waiting_seconds()


async def resumed(environment: dict[str, str]) -> bool:
    return await run(environment, "resume") == 0


async def none_left(database: DatabaseProxy) -> bool:
    return not await events(database)


async def test_it_is_not_resumed_while_a_part_of_the_feed_has_no_lease(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(environment, "resume") == 1
    assert "no lease" in capsys.readouterr().out
    assert await run(environment, "status") == 1
    assert "stop the expiry, or events may be lost" in capsys.readouterr().out


async def test_who_may_not_change_a_container_is_told_who_may(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data-plane role allows items alone: https://learn.microsoft.com/azure/cosmos-db/how-to-setup-rbac."""

    async def forbidden(*_: Any, **__: Any) -> None:
        raise CosmosHttpResponseError(
            status_code=403, message="cannot be authorized by AAD token in data plane"
        )

    monkeypatch.setattr(DatabaseProxy, "replace_container", forbidden)
    assert await run(environment, "stop") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "docs/operate/emergency-brake.md" in line
    assert "403" in line


async def has_leases(service: Application) -> bool:
    status = await service.outbox.observer.status()
    return bool(status.leases) and not status.missing
