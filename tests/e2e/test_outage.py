"""After a long outage of the broker the backlog is delivered in order, in memory that does not grow with the backlog.

The backlog has about 2 000 events; ``OUTAGE_CONTACTS=205`` makes 10 000, which take a minute or two.
"""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from domain.values import ContactDetails, Name
from tests.e2e.conftest import Stack, stack
from tests.e2e.test_relay_worker import settings
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.use_cases import contacts_of, wire

pytestmark = pytest.mark.own_stack

CONTACTS, CHANGES, PROPERTIES = int(os.environ.get("OUTAGE_CONTACTS", "40")), 16, 3
EVENTS = CONTACTS * (1 + CHANGES * PROPERTIES)


def _make_it(details: ContactDetails, _: ContactDetails) -> ContactDetails:
    return details


async def write_backlog(started: Stack) -> list[str]:
    """Written straight through the use cases: HTTP is not the matter here."""
    application = wire(settings(started))
    places = asyncio.Semaphore(8)

    async def one() -> str:
        async with places:
            contact_id = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id
            for number in range(CHANGES):
                changed = DETAILS.model_copy(
                    update={
                        "name": Name(first_name=f"J{number}", last_name="Doe"),
                        "email": f"j{number}@contoso.com",
                        "description": f"change {number}",
                    }
                )
                await contacts_of(application).revise(contact_id, partial(_make_it, changed), ORIGIN)
            return str(contact_id)

    async with application.outbox.resources:
        return list(await asyncio.gather(*(one() for _ in range(CONTACTS))))


async def receive_all(started: Stack, count: int) -> dict[str, list[int]]:
    """Every contact's sequences, in the order received, by a few session receivers.

    Each asks for one message at a time, and completes it: the SDK gives back what comes late, which is lost if it was
    deleted as it was sent, and is overtaken if more were asked for.
    """
    received: dict[str, list[int]] = {}
    total = 0

    async def receiver() -> None:
        nonlocal total
        async with ServiceBusClient.from_connection_string(started.servicebus.connection_string) as client:
            while total < count:
                try:
                    async with client.get_subscription_receiver(
                        started.topic.name, started.topic.subscription, session_id=NEXT_AVAILABLE_SESSION,
                        max_wait_time=2,
                    ) as session:  # fmt: skip
                        while messages := await session.receive_messages(1, max_wait_time=0.5):
                            for message in messages:
                                await session.complete_message(message)
                                properties: Any = message.application_properties
                                contact = properties[b"cloudEvents_subject"].decode()
                                received.setdefault(contact, []).append(properties[b"sequence"])
                            total += len(messages)
                except OperationTimeoutError:
                    continue

    await asyncio.gather(*(receiver() for _ in range(6)))
    return received


def memory_mb(pid: int) -> float:
    """The most that the host and its worker process have held."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children, "the function runs in a process of its own"
    return sum(map(_peak_mb, [str(pid), *children]))


def _peak_mb(pid: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmHWM")


@pytest.mark.long
@pytest.mark.timeout(280)
async def test_a_backlog_drains_in_order_and_in_flat_memory(tmp_path: Path) -> None:
    with stack(tmp_path, EVENT_TTL_SECONDS="864000") as started:
        async with aiohttp.ClientSession() as http:
            contact = await started.create(http)
        assert await started.sequences(contact["id"], 1) == [1]
        before = memory_mb(started.functions.pid)
        started.servicebus.kill()
        contacts = await write_backlog(started)
        started.servicebus.start()

        received = await receive_all(started, EVENTS)

        assert set(received) == set(contacts)
        whole = list(range(1, 2 + CHANGES * PROPERTIES))
        assert [contact for contact, sequences in received.items() if sequences != whole] == []
        assert memory_mb(started.functions.pid) - before < 60
