"""Measures what a caller pays: a contact through the use case, against a bare batch of the same two documents.

In processor time of the caller: what the server does is the same for both.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import aggregate_item, event_item
from domain.contact import Contact
from tests.support.contacts import DETAILS, NOON, ORIGIN
from tests.support.use_cases import contacts_of, wire
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

COUNT = 400


async def creations(new_bed: NewBed, say: Say) -> Part:
    """Measures the two in turn, so that a disturbance of the machine affects both."""
    say(f"create: {COUNT} contacts through the use case, and as bare batches")
    bed = new_bed()
    await bed.deploy()
    application = wire(bed.settings)
    async with application.outbox.resources, bed.contacts() as container:
        contacts = contacts_of(application)
        ours: list[float] = []
        bare: list[float] = []
        for number in range(COUNT + 20):
            documents = _documents()

            async def batch(documents: tuple[dict[str, Any], dict[str, Any]] = documents) -> object:
                return await container.execute_item_batch(
                    [("create", (each,)) for each in documents], documents[0]["id"]
                )

            mine, theirs = await _timed(lambda: contacts.create(DETAILS, ORIGIN)), await _timed(batch)
            if number >= 20:  # the first ones warm up connections and caches
                ours.append(mine)
                bare.append(theirs)
    mine, theirs = statistics.median(ours) * 1000, statistics.median(bare) * 1000
    row = Row(
        "create through the use case, processor time, p50",
        f"{mine:.2f} ms",
        f"{theirs:.2f} ms: a bare batch of two",
        mine / theirs,
        1.05,
        at_most=True,
    )
    return Part([row], [])


async def _timed(action: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await action()
    return time.process_time() - began


def _documents() -> tuple[dict[str, Any], dict[str, Any]]:
    contact = Contact.create(DETAILS, at=NOON)
    changes = contact.changes()
    assert changes is not None
    event = event_item(contact, changes.events[0], ORIGIN, ttl=60)
    return aggregate_item(contact, changes.state, ttl=-1), event
