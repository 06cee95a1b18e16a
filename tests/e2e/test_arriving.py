"""Events that wait are applied in the order of their aggregate, each once, whatever becomes of the workers."""

import asyncio
import random
import sys
import time
from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import pytest
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.service import Wired
from cosmos_outbox.servicebus.message import message_from_event
from devstack.testing import Process, Service, eventually
from tests.support.azure import Topic, contacts_database
from tests.support.contacts import DETAILS
from tests.support.paths import ROOT
from tests.support.use_cases import read_model_of, wire

CONTACTS, EACH = 40, 10
WORKERS = 2
KILLED_FOR_SECONDS = 20.0

CREATED = {**DETAILS.model_dump(mode="json", by_alias=True), "createdAt": "2026-03-01T12:00:00Z"}


def event(contact: str, sequence: int) -> OutboxEvent:
    now, event_id = utc_now(), f"{contact}-{sequence}"
    action = "ContactCreatedEvent" if sequence == 1 else "ContactNameUpdatedEvent"
    told = (
        {"contact": CREATED} if sequence == 1 else {"name": {"firstName": f"J{sequence}", "lastName": "Doe"}}
    )
    head = {"id": event_id, "contactId": contact, "action": action, "sequence": sequence}
    data = {**head, "createdAt": now.isoformat(), **told}
    return OutboxEvent(event_id, AggregateKey("contact", contact), action, sequence, now, data=data)


async def send(settings: dict[str, str], contacts: list[str], sequences: range, sessions: int | None) -> None:
    events = [event(contact, sequence) for sequence in sequences for contact in contacts]
    async with (
        ServiceBusClient.from_connection_string(settings["SERVICEBUS"]) as client,
        client.get_topic_sender(settings["SERVICEBUS_TOPIC"]) as sender,
    ):
        for start in range(0, len(events), 100):
            await sender.send_messages(
                [
                    message_from_event(
                        each, service=CloudEvents("/contacts"), partitioned=False, sessions=sessions
                    )
                    for each in events[start : start + 100]
                ]
            )


def worker(settings: dict[str, str], folder: Path) -> Process:
    command = [sys.executable, "-m", "tests.e2e.logging_worker", str(folder / "applied.log")]
    return Process("worker", folder / f"worker-{uuid4()}.log", command, settings, ROOT).start()


async def left(application: Wired, contacts: list[str], last: int) -> int:
    found = [
        await read_model_of(application).inbox.entries.newest(AggregateKey("contact", each))
        for each in contacts
    ]
    return sum(each is None or each.entry.last_sequence < last for each in found)


def applied(folder: Path) -> dict[str, list[int]]:
    """The sequences of each contact, in the order in which they were applied."""
    told = defaultdict(list)
    for line in (folder / "applied.log").read_text().splitlines():
        contact, sequence, event_id = line.split()
        assert event_id == f"{contact}-{sequence}", "by its event, not from its source"
        told[contact].append(int(sequence))
    return told


@pytest.mark.long
@pytest.mark.timeout(280)
@pytest.mark.parametrize("sessions", [32, None], ids=["buckets", "a session for each"])
async def test_two_workers_that_are_killed_again_and_again_apply_each_event_once_and_in_order(
    cosmos_server: Service, servicebus_server: Service, tmp_path: Path, sessions: int | None
) -> None:
    topic, contacts = Topic(servicebus_server), [str(uuid4()) for _ in range(CONTACTS)]
    await topic.create()
    async with contacts_database(cosmos_server) as database:
        settings = {
            "COSMOS": cosmos_server.connection_string, "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus_server.connection_string, "SERVICEBUS_TOPIC": topic.name,
            "SERVICEBUS_SUBSCRIPTION": topic.subscription, "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        application = wire(settings)
        async with application.resources:
            working = [worker(settings, tmp_path) for _ in range(WORKERS)]
            sending = asyncio.create_task(send(settings, contacts, range(1, EACH + 1), sessions))
            until, kills = time.monotonic() + KILLED_FOR_SECONDS, 0
            while time.monotonic() < until:
                await asyncio.sleep(random.uniform(0.5, 6.0))
                one = random.randrange(WORKERS)
                working[one].kill()
                working[one], kills = worker(settings, tmp_path), kills + 1
            await sending
            await eventually(lambda: _none_left(application, contacts), within=150)
            for each in working:
                each.terminate()
            found = [
                await read_model_of(application).inbox.entries.newest(AggregateKey("contact", each))
                for each in contacts
            ]
    await topic.delete()
    assert kills >= 3
    assert [each.entry.healed for each in found if each is not None] == [0] * CONTACTS
    for contact, sequences in applied(tmp_path).items():
        assert sequences == sorted(set(sequences)), f"{contact}: {sequences}"
        assert EACH - len(sequences) <= kills, (
            "what is missing was applied, and not written down before a kill"
        )


async def _none_left(application: Wired, contacts: list[str]) -> bool:
    return await left(application, contacts, EACH) == 0
