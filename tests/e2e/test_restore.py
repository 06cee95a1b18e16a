"""An earlier state in a new database is brought back into service in the order of docs/operate/restore.md."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from azure.cosmos.aio import DatabaseProxy

from cosmos_outbox.cli import rebuild as rebuild_directory
from cosmos_outbox.cli.publish_again import CLOCKS_DIFFER_SECONDS
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.service import Wired
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker import subscriber as subscriber_worker
from devstack.testing import Service, eventually
from domain.values import ContactDetails
from tests.support.azure import CONTACTS, DIRECTORY, PARKED, Topic, contacts_database, set_ttl
from tests.support.command import run_command
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.use_cases import contacts_of, read_model_of, wire

SUBSCRIPTION = "directory"
Documents = list[dict[str, Any]]


@pytest.fixture
async def topic(servicebus_server: Service) -> AsyncIterator[Topic]:
    topic = Topic(servicebus_server)
    await topic.create(SUBSCRIPTION)
    yield topic
    await topic.delete()


def environment(cosmos: Service, database: DatabaseProxy, topic: Topic) -> dict[str, str]:
    return {
        "COSMOS": cosmos.connection_string,
        "COSMOS_DATABASE": database.id,
        "SERVICEBUS": topic.service.connection_string,
        "SERVICEBUS_TOPIC": topic.name,
        "SERVICEBUS_SUBSCRIPTION": SUBSCRIPTION,
        "RELAY_POLL_DELAY_MS": "50",
    }


@asynccontextmanager
async def at_work(settings: dict[str, str], *workers: Any) -> AsyncIterator[Wired]:
    """The service's use cases, with these workers beside them."""
    stop = asyncio.Event()
    running = [asyncio.create_task(worker(wire(settings), stop)) for worker in workers]
    application = wire(settings)
    async with application.outbox.resources:
        yield application
    stop.set()
    await asyncio.gather(*running)


async def copied(database: DatabaseProxy, name: str) -> Documents:
    container = database.get_container_client(name)
    return [
        {field: value for field, value in item.items() if not field.startswith("_")}
        async for item in container.read_all_items()
    ]


async def put(database: DatabaseProxy, name: str, documents: Documents) -> None:
    container = database.get_container_client(name)
    for document in documents:
        await container.create_item(document)


async def describe(application: Wired, contact_id: UUID, description: str) -> None:
    def revised(before: ContactDetails) -> ContactDetails:
        return before.model_copy(update={"description": description})

    await contacts_of(application).revise(contact_id, revised, ORIGIN)


async def rename_mail(application: Wired, contact_id: UUID, email: str) -> None:
    def revised(before: ContactDetails) -> ContactDetails:
        return before.model_copy(update={"email": email})

    await contacts_of(application).revise(contact_id, revised, ORIGIN)


async def entry(application: Wired, contact_id: UUID) -> tuple[int, str | None] | None:
    """Sequence and email of the directory's entry; the email None: it is a deleted one."""
    found = await read_model_of(application).inbox.entries.newest(AggregateKey("contact", str(contact_id)))
    if found is None:
        return None
    return found.entry.last_sequence, found.entry.state.email if found.entry.state else None


@pytest.mark.long
async def test_an_earlier_state_goes_on_where_it_was_and_the_directory_follows(
    cosmos_server: Service, topic: Topic
) -> None:
    workers = relay_worker.run, subscriber_worker.run
    async with contacts_database(cosmos_server) as before:
        async with at_work(environment(cosmos_server, before, topic), *workers) as service:
            changed, gone = [
                (await contacts_of(service).create(DETAILS, ORIGIN)).aggregate.id for _ in range(2)
            ]
            await describe(service, changed, "before")
            backup = await copied(before, CONTACTS)

            await rename_mail(service, changed, "after@contoso.com")
            await contacts_of(service).delete(gone, ORIGIN)
            born = (await contacts_of(service).create(DETAILS, ORIGIN)).aggregate.id

            async def followed() -> bool:
                entries = [await entry(service, each) for each in (changed, gone, born)]
                return entries == [(3, "after@contoso.com"), (2, None), (1, DETAILS.email)]

            await eventually(followed)
        ahead = [each for each in await copied(before, DIRECTORY) if each["type"] == "entry"]

    async with contacts_database(cosmos_server) as restored:
        settings = environment(cosmos_server, restored, topic)
        # Restored with TTL off; the directory stands for a subscriber's store that was not restored.
        await set_ttl(restored, CONTACTS, None)
        await put(restored, CONTACTS, backup)
        await put(restored, DIRECTORY, ahead)
        assert await copied(restored, PARKED) == []

        rebuilt = await asyncio.to_thread(rebuild_directory.main, ["--source-wins"], settings)
        assert rebuilt == 0
        async with at_work(settings) as service:
            assert await entry(service, changed) == (2, DETAILS.email)
            assert await entry(service, gone) == (1, DETAILS.email)
            assert await entry(service, born) is None

        async with at_work(settings, *workers) as service:
            await eventually(lambda: caught_up(service))
            await rename_mail(service, changed, "again@contoso.com")

            async def goes_on() -> bool:
                return await entry(service, changed) == (3, "again@contoso.com")

            await eventually(goes_on)
            assert await entry(service, gone) == (1, DETAILS.email)
            await eventually(lambda: caught_up(service))

            async def published() -> bool:
                return await asyncio.to_thread(published_again, settings) >= 3

            await eventually(published)
            await set_ttl(restored, CONTACTS, -1)


def published_again(settings: dict[str, str]) -> int:
    """How many events were published again: all that were stored until a few seconds ago."""
    now = datetime.now(UTC).replace(microsecond=0)
    since, to = now - timedelta(hours=1), now - timedelta(seconds=CLOCKS_DIFFER_SECONDS)
    window = "--since", since.isoformat(), "--to", to.isoformat()
    ended = run_command("publish-again", *window, environment={**os.environ, **settings})
    assert ended.code == 0, ended.err
    [count] = re.findall(r"^publish-again: ([0-9]+) event\(s\) published$", ended.out, re.MULTILINE)
    return int(count)


async def caught_up(service: Wired) -> bool:
    status = await service.operator.observer.status()
    return (
        bool(status.leases)
        and not status.missing
        and not any(lease.oldest_waiting_seconds is not None for lease in status.leases)
    )
