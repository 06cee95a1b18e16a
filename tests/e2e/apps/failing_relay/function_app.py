"""The deployed app, but the relay fails ``RELAY_FAILURES`` times after sending half of a batch.

``RELAY_RETRIES`` replaces the count of the relay's retry policy, to show the loss after a finite count.
"""

import os
from uuid import UUID

import azure.functions as func

from cosmos_outbox.functions.http import http_function
from cosmos_outbox.http import request
from cosmos_outbox.http.message import Answer, Request
from infra.bootstrap import service
from tests.support import contacts_http as contacts
from tests.support.use_cases import contacts_of

app = func.FunctionApp()
_failures_left = int(os.environ["RELAY_FAILURES"])


@app.route(route="contacts", methods=["POST"])
@http_function
async def create_contact(req: Request) -> Answer:
    """As deployed."""
    details = contacts.contact_details(req)
    return contacts.shown.created(req, await contacts_of(service()).create(details, request.origin(req)))


@app.route(route="contacts/{id}", methods=["PATCH"])
@http_function
async def patch_contact(req: Request) -> Answer:
    """As deployed."""
    contact_id, revision = UUID(req.route["id"]), contacts.revision(req)
    return contacts.shown.changed(
        await contacts_of(service()).revise(contact_id, revision, request.origin(req))
    )


@app.cosmos_db_trigger(
    arg_name="documents",
    connection="COSMOS",
    database_name="%COSMOS_DATABASE%",
    container_name="%COSMOS_CONTAINER%",
    lease_container_name="%COSMOS_LEASE_CONTAINER%",
    start_from_beginning=True,  # type: ignore[arg-type]  # the library's own annotation is wrong: the host takes a bool
    feed_poll_delay=200,
)
@app.retry(strategy="fixed_delay", max_retry_count=os.environ["RELAY_RETRIES"], delay_interval="00:00:01")
async def relay(documents: func.DocumentList) -> None:
    """As deployed, but for the failures."""
    global _failures_left  # noqa: PLW0603 - a fault, injected
    outbox, sender = service().outbox, service().relay.relay
    # In the order in which the relay sends: the feed has none inside a transaction, so any half would hold gaps.
    events = sorted(outbox.events.events(documents), key=lambda event: (event.lsn, event.sequence or 0))
    if events and _failures_left:
        _failures_left -= 1
        await sender.forward(events[: len(events) // 2])
        raise RuntimeError("injected: died after half of the batch")
    await sender.forward(events)
