"""The triggers: each parses, calls and answers. The import lists the functions, and reads how the relay is triggered.

The Functions host tries HTTP routes in the alphabetical order of the functions' names
(https://github.com/Azure/azure-functions-host/issues/9876): so the name of the catch-all function sorts last.
"""

from typing import TYPE_CHECKING

import azure.functions as func

from infra import relay_feed
from infra.bootstrap import application
from infra.contacts import http as contacts
from infra.contacts.http import answering
from infra.http import catch_all, methods, request, responses
from infra.http.operator_functions import operator_functions
from infra.http.set_aside import set_aside_functions
from infra.late import late

if TYPE_CHECKING:
    from infra import subscriber
    from infra.contacts import directory_http as directory
else:
    directory, subscriber = late("infra.contacts.directory_http"), late("infra.subscriber")

SWEEP_SECONDS = 120.0
"""What a run of the sweep may take; the next run goes on from there."""

app = catch_all.IndexedApp(http_auth_level=func.AuthLevel.FUNCTION)
# GET operations (the page), GET health, GET dependencies, GET instance, GET relay, GET history/{path}/{id}, GET parked,
# GET parked/{id}, POST parked/{id}/discard, POST parked/{path}/{id}/replay
app.register_functions(operator_functions(application, contacts.OPERATIONS, lists=["set-aside"]))
# GET subscriber, GET set-aside, GET set-aside/{id}, POST set-aside/{id}/apply, POST set-aside/{id}/discard,
# POST dead-letters/collect
app.register_functions(set_aside_functions(application, contacts.OPERATIONS))


@app.route(route="contacts", methods=["POST"])
@answering.honouring("Idempotency-Key")
async def create_contact(req: func.HttpRequest) -> func.HttpResponse:
    """POST /contacts: create a contact"""
    details, key = contacts.contact_details(req), request.idempotency_key(req)
    application().outbox.shedder.check()
    service, origin = application().contacts, request.origin(req)
    if key is None:
        return contacts.resource.created(await service.create(details, origin))
    keyed = request.keyed(req, application().callers.caller(req), key)
    receipt, replayed = await service.create_once(details, origin, keyed)
    return contacts.resource.created(receipt, replayed=replayed)


@app.route(route="contacts", methods=methods.READING)
@answering
async def list_contacts(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts?pageSize=&continuationToken=: list contacts, a page a call"""
    size, token = request.page_request(req)
    return contacts.resource.listed(await application().contacts.page(size, token, request.origin(req)))


@app.route(route="contacts/{id}", methods=methods.READING)
@answering.honouring("If-None-Match")
async def get_contact(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts/{id}: read a contact"""
    contact_id = contacts.contact_id(req)
    return contacts.resource.found(req, await application().contacts.read(contact_id, request.origin(req)))


@app.route(route="contacts/{id}", methods=["PATCH"])
@answering.honouring("If-Match")
async def patch_contact(req: func.HttpRequest) -> func.HttpResponse:
    """PATCH /contacts/{id}: change a contact with a JSON Merge Patch (RFC 7396)"""
    contact_id, revision, versions = contacts.contact_id(req), contacts.revision(req), request.if_match(req)
    application().outbox.shedder.check()
    service, origin = application().contacts, request.origin(req)
    return contacts.resource.changed(await service.revise(contact_id, revision, origin, if_match=versions))


@app.route(route="contacts/{id}", methods=["DELETE"])
@answering.honouring("If-Match")
async def delete_contact(req: func.HttpRequest) -> func.HttpResponse:
    """DELETE /contacts/{id}: delete a contact"""
    contact_id, versions = contacts.contact_id(req), request.if_match(req)
    application().outbox.shedder.check()
    await application().contacts.delete(contact_id, request.origin(req), if_match=versions)
    return responses.no_content()


@app.route(route="directory", methods=methods.READING)
@answering
async def search_directory(req: func.HttpRequest) -> func.HttpResponse:
    """GET /directory?name=&email=&company=&city=&country=&sort=&pageSize=&continuationToken=: search the directory"""
    search, (size, token) = directory.search(req), request.page_request(req, *directory.PARAMETERS)
    return directory.listed(await application().directory.search(search, size, token))


@app.route(route="{*path}")  # with every method; a list of azure-functions cannot name TRACE
@answering.honouring(*request.HONOURED)
async def unrouted(req: func.HttpRequest) -> func.HttpResponse:
    """Every call that no other function takes. The name of this function must sort last."""
    return catch_all.no_such_call(req, app, "contacts are at /api/contacts")


@app.cosmos_db_trigger(arg_name="documents", **relay_feed.trigger())
# Without an endless retry the host checkpoints past a failed batch, and its events are gone.
@app.retry(
    strategy="exponential_backoff",
    max_retry_count="-1",
    minimum_interval="00:00:01",
    maximum_interval="00:01:00",
)
async def relay(documents: func.DocumentList, context: func.Context) -> None:
    """Change feed -> topic. Returns only after every event was accepted or parked; otherwise raises."""
    await application().outbox.forward(documents, context)


@app.timer_trigger(arg_name="timer", schedule="0 */5 * * * *")
async def watch_relay(timer: func.TimerRequest) -> None:
    """Every five minutes: logs an error when events wait for too long, and makes missing leases again."""
    await application().outbox.observer.watch()


@app.timer_trigger(arg_name="timer", schedule="30 * * * * *")
async def tend_parked(timer: func.TimerRequest) -> None:
    """Every minute: sends parked events in whose way nothing stands, and discards what is parked for too long."""
    await application().outbox.parking.upkeep()


@app.service_bus_topic_trigger(
    arg_name="message",
    connection="SERVICEBUS",
    topic_name="%SERVICEBUS_TOPIC%",
    subscription_name="%SERVICEBUS_SUBSCRIPTION%",
    is_sessions_enabled=True,
)
async def contact_directory(message: func.ServiceBusMessage, context: func.Context) -> None:
    """Topic -> directory. Returns when the event is applied or set aside; raises after a wait, if the store is away."""
    await subscriber.receive(lambda: application().subscriber, message, context)


@app.timer_trigger(arg_name="timer", schedule="30 * * * * *")
async def watch_set_aside(timer: func.TimerRequest) -> None:
    """Every minute: collects the subscription's dead letters, and tries again what was set aside."""
    await application().subscriber.watch()


@app.timer_trigger(arg_name="timer", schedule="0 */10 * * * *")
async def sweep_directory(timer: func.TimerRequest) -> None:
    """Every ten minutes: compares more of the directory with the contacts, and heals what no event will."""
    await application().sweep.run(seconds=SWEEP_SECONDS)
