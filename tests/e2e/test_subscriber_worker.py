"""The subscriber in a process of its own, without a Functions host: it applies, stops, dies, another one goes on."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.service import Wired
from devstack.testing import Process, Service, eventually
from tests.e2e.test_relay_worker import probe
from tests.support import command
from tests.support.azure import Topic, contacts_database
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.use_cases import contacts_of, read_model_of, wire

SUBSCRIPTION = "directory"


@contextmanager
def worker(settings: dict[str, str], log: Path) -> Iterator[Process]:
    process = command.worker("subscriber", settings, log)
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
async def settings(cosmos_server: Service, servicebus_server: Service) -> AsyncIterator[dict[str, str]]:
    topic = Topic(servicebus_server)
    await topic.create(SUBSCRIPTION)
    async with contacts_database(cosmos_server) as database:
        yield {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
            "SERVICEBUS_SUBSCRIPTION": SUBSCRIPTION,
        }
    await topic.delete()


@asynccontextmanager
async def service(settings: dict[str, str]) -> AsyncIterator[Wired]:
    application = wire(settings)
    async with application.outbox.resources:
        yield application


async def sequence(application: Wired, contact_id: UUID) -> int:
    found = await read_model_of(application).inbox.entries.newest(AggregateKey("contact", str(contact_id)))
    return 0 if found is None else found.entry.last_sequence


async def send(settings: dict[str, str], *messages: ServiceBusMessage | AmqpAnnotatedMessage) -> None:
    async with (
        ServiceBusClient.from_connection_string(settings["SERVICEBUS"]) as client,
        client.get_topic_sender(settings["SERVICEBUS_TOPIC"]) as sender,
    ):
        for message in messages:
            await sender.send_messages(message)


def described(contact_id: UUID, number: int) -> ServiceBusMessage:
    event = {
        "id": f"{contact_id}-{number}", "action": "ContactDescriptionUpdatedEvent", "sequence": number,
        "createdAt": "2026-03-01T12:00:00Z", "contactId": str(contact_id), "description": "x",
    }  # fmt: skip
    return ServiceBusMessage(
        json.dumps(event).encode(), message_id=str(event["id"]), session_id=str(contact_id)
    )


@pytest.mark.long  # test_subscriber_app has a worker, tests/contract/test_running each stop
async def test_workers_apply_events_in_order_stop_at_once_and_take_over(
    settings: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "worker.log"
    async with service(settings) as application:
        contacts = [(await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id for _ in range(3)]
        with worker(settings, log) as first, worker(settings, log):
            await send(settings, *(described(each, number) for number in (1, 2, 3) for each in contacts))

            async def all_at(wanted: int) -> bool:
                return {await sequence(application, each) for each in contacts} == {wanted}

            await eventually(lambda: all_at(3))
            first.kill()
            await send(settings, *(described(each, 4) for each in contacts))
            await eventually(lambda: all_at(4), within=60)
        stopped = tmp_path / "stopped.log"
        with worker(settings, stopped) as last:
            await eventually(lambda: "the subscriber works" in stopped.read_text())
            assert await probe(stopped, "/healthz") == (200, {"status": "alive"})
            assert await probe(stopped, "/readyz") == (200, {"status": "ready"})
            assert await asyncio.to_thread(last.terminate) == 0
    assert "stopped: 0 message(s) received" in stopped.read_text()
    assert "Traceback" not in log.read_text() + stopped.read_text()
