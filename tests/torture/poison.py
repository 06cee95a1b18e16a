"""Broken event documents, written directly into the container of the contacts, past the service."""

import asyncio
import random
import time
import uuid
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from outbox_simulation.invariants.records import Poisoned
from tests.support.azure import CONTACTS
from tests.torture.journal import Journal
from tests.torture.stack import DATABASE, Stack

_DEADLINE_SECONDS = 10.0
_LARGER_THAN_A_MESSAGE = 300_000

BREAKAGES: dict[str, dict[str, Any]] = {
    "no data": {"data": None},
    "data is text": {"data": "contact-created"},
    "nothing in it": {"data": {}},
    "sequence zero": {"data": {"sequence": 0}},
    "a sequence that is none": {"data": {"sequence": "second"}},
    "another contact's": {"data": {"contactId": "00000000-0000-4000-8000-000000000000"}},
    "another event's": {"data": {"id": "00000000-0000-4000-8000-000000000000"}},
    "too large": {"data": {"sequence": None, "note": "x" * _LARGER_THAN_A_MESSAGE}},
}
"""What each changes in an otherwise valid document."""


async def poison(
    stack: Stack, journal: Journal, chance: random.Random, contact: str | None = None
) -> Poisoned:
    """Write one broken document: into a contact's partition, or into one that no contact has."""
    partition = contact or chance.choice([f"nobody-{chance.getrandbits(32):x}", _uuid(chance)])
    document = _broken(chance, partition)
    stored: bool | None = None
    try:
        stored = await _store(stack, document)
    finally:  # also when the run is broken off here: the document may be there
        done = Poisoned(
            at=time.monotonic(),
            document=document["id"],
            partition=partition,
            stored=stored,
            aggregate=contact,
        )
        journal.write(done)
    return done


def _broken(chance: random.Random, partition: str) -> dict[str, Any]:
    breakage = BREAKAGES[chance.choice(sorted(BREAKAGES))]
    event_id = _uuid(chance)
    data = {
        "id": event_id,
        "contactId": partition,
        "action": "ContactDescriptionUpdatedEvent",
        "sequence": 1000,
        "createdAt": "2026-03-01T12:00:00Z",
        "description": "poison",
    }
    broken = breakage["data"]
    return {
        "id": event_id,
        "partitionKey": partition,
        "type": "domainEvent",
        "data": data | broken if isinstance(broken, dict) and broken else broken,
        "ttl": 864_000,
    }


async def _store(stack: Stack, document: dict[str, Any]) -> bool | None:
    client = CosmosClient.from_connection_string(stack.cosmos.connection_string)
    container = client.get_database_client(DATABASE).get_container_client(CONTACTS)
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS), client:
            await container.create_item(document)
    except CosmosHttpResponseError as error:
        return True if error.status_code == 409 else None  # 409: the SDK's own earlier attempt was stored
    except (AzureError, OSError, TimeoutError):
        return None
    finally:
        await client.close()  # the SDK leaves its session open when it could not reach the account
    return True


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))
