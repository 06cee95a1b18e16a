"""What other versions of the service store, written directly into a contact's partition, past the API.

A later version adds fields that this one does not know. An earlier one, or the article's sample, stores events without
a digest, without the type of their aggregate, or without a sequence.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceExistsError

from cosmos_outbox.kernel.clock import utc_now
from outbox_simulation.invariants.history import cause
from outbox_simulation.invariants.records import Answered, Attempted, Outcome, Unsequenced
from tests.support.azure import CONTACTS
from tests.torture.contacts import UPDATED, expected, value_of
from tests.torture.journal import Journal
from tests.torture.stack import DATABASE, Stack

UNSEQUENCED_ACTION = "ContactImportedEvent"

_DEADLINE_SECONDS = 10.0
_ERRORS = (AzureError, OSError, TimeoutError)


async def change_as_another_version(stack: Stack, journal: Journal, contact: str, operation: str) -> bool:
    """One operation: new fields in the contact, another e-mail address, and its event without a digest.

    A text that looks like a date has no place in it: without a digest nobody sees that the host has written it anew.

    Whether it is certainly done.
    """
    events = expected("change", operation, ("email",))
    journal.write(
        Attempted(
            at=time.monotonic(),
            operation=operation,
            number=1,
            call="change",
            aggregate=contact,
            events=events,
        )
    )
    outcome: Outcome = "unknown"
    try:
        outcome = await _changed(stack, contact, operation)
    finally:  # also when the run is broken off here
        body = {"id": contact, "email": value_of(operation, "email")} if outcome == "acknowledged" else None
        answer = Answered(at=time.monotonic(), operation=operation, number=1, outcome=outcome, body=body)
        journal.write(answer)
    return outcome == "acknowledged"


async def store_without_sequence(stack: Stack, journal: Journal, contact: str, event_id: str) -> bool:
    """An event without a sequence. Whether it is certainly stored."""
    data = {"contactId": contact, "action": UNSEQUENCED_ACTION, "createdAt": now(), "source": "import"}
    journal.write(Unsequenced(at=time.monotonic(), document=event_id, aggregate=contact))
    try:
        async with _contacts(stack) as container:
            await container.create_item(event(contact, event_id, data))
    except CosmosResourceExistsError:
        pass  # the SDK's own earlier attempt was stored
    except _ERRORS:
        return False
    journal.write(Unsequenced(at=time.monotonic(), document=event_id, aggregate=contact, stored=True))
    return True


async def _changed(stack: Stack, contact: str, operation: str) -> Outcome:
    """Replace the contact at the version that was read, once."""
    outcome: Outcome = "refused"
    try:
        async with _contacts(stack) as container:
            item = await container.read_item(contact, contact)
            if item["data"]["deleted"]:
                return outcome
            outcome = "unknown"
            await container.execute_item_batch(operations(item, operation), contact)
    except _ERRORS:
        return outcome
    return "acknowledged"


def operations(item: dict[str, Any], operation: str) -> list[tuple[Any, ...]]:
    """The batch that changes the contact as a later version does."""
    contact, data = item["id"], item["data"]
    sequence, at = data["lastSequence"] + 1, now()
    body = {
        "contactId": contact,
        "action": UPDATED["email"],
        "sequence": sequence,
        "createdAt": at,
        "email": value_of(operation, "email"),
        "correlationId": cause(operation, 1),
    }
    changed = {name: value for name, value in item.items() if not name.startswith("_")}
    changed["addedLater"] = {"by": "a later version"}
    changed["data"] = data | {
        "email": value_of(operation, "email"),
        "modifiedAt": at,
        "lastSequence": sequence,
        "nickname": "of a later version",
    }
    event_id = str(uuid.uuid5(uuid.UUID(contact), operation))
    return [
        ("replace", (contact, changed), {"if_match_etag": item["_etag"]}),
        ("create", (event(contact, event_id, body),)),
    ]


def event(contact: str, event_id: str, data: dict[str, Any]) -> dict[str, Any]:
    """An event's document, as an earlier version stores it."""
    return {
        "id": event_id,
        "partitionKey": contact,
        "type": "domainEvent",
        "data": {"id": event_id, **data},
        "ttl": 864_000,
    }


def now() -> str:
    """As a document has it."""
    return utc_now().isoformat()


@asynccontextmanager
async def _contacts(stack: Stack) -> AsyncIterator[ContainerProxy]:
    client = CosmosClient.from_connection_string(stack.cosmos.connection_string)
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS), client:
            yield client.get_database_client(DATABASE).get_container_client(CONTACTS)
    finally:
        await client.close()  # the SDK leaves its session open when it could not reach the account
