"""The triggers: each parses, calls and answers. The import only lists the functions; it opens and reads nothing.

The Functions host tries HTTP routes in the alphabetical order of the functions' names
(https://github.com/Azure/azure-functions-host/issues/9876): so the name of the catch-all function sorts last.
"""

import logging

import azure.functions as func

from infra import relay_feed
from infra.bootstrap import application
from infra.contacts import http as contacts
from infra.contacts.http import answering
from infra.contacts.subscriber import aggregate_of, received_event
from infra.http import catch_all, request, responses
from infra.http.operator_functions import operator_functions

app = catch_all.IndexedApp(http_auth_level=func.AuthLevel.FUNCTION)
# GET health, GET relay, GET parked, GET parked/{id}, POST parked/{id}/discard, POST parked/{path}/{id}/replay
app.register_functions(operator_functions(application, contacts.OPERATIONS))

_log = logging.getLogger(__name__)


@app.route(route="contacts", methods=["POST"])
@answering
async def create_contact(req: func.HttpRequest) -> func.HttpResponse:
    """POST /contacts"""
    details, key = contacts.contact_details(req), request.idempotency_key(req)
    service, origin = application().contacts, request.origin(req)
    if key is None:
        return contacts.created(await service.create(details, origin))
    keyed = request.keyed(req, application().callers.caller(req), key)
    receipt, replayed = await service.create_once(details, origin, keyed)
    return contacts.created(receipt, replayed=replayed)


@app.route(route="contacts", methods=["GET"])
@answering
async def list_contacts(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts?pageSize=&continuationToken="""
    size, token = request.page_request(req)
    return contacts.listed(await application().contacts.page(size, token, request.origin(req)))


@app.route(route="contacts/{id}", methods=["GET"])
@answering
async def get_contact(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts/{id}"""
    contact_id = contacts.contact_id(req)
    return contacts.found(req, await application().contacts.read(contact_id, request.origin(req)))


@app.route(route="contacts/{id}", methods=["PATCH"])
@answering
async def patch_contact(req: func.HttpRequest) -> func.HttpResponse:
    """PATCH /contacts/{id}"""
    contact_id, revision, versions = contacts.contact_id(req), contacts.revision(req), request.if_match(req)
    service, origin = application().contacts, request.origin(req)
    return contacts.changed(await service.revise(contact_id, revision, origin, if_match=versions))


@app.route(route="contacts/{id}", methods=["DELETE"])
@answering
async def delete_contact(req: func.HttpRequest) -> func.HttpResponse:
    """DELETE /contacts/{id}"""
    contact_id, versions = contacts.contact_id(req), request.if_match(req)
    await application().contacts.delete(contact_id, request.origin(req), if_match=versions)
    return responses.no_content()


@app.route(route="{*path}", methods=[*catch_all.METHODS])
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
async def relay(documents: func.DocumentList) -> None:
    """Change feed -> topic. Returns only after every event was accepted or parked; otherwise raises."""
    await application().outbox.forward(documents)


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
async def contact_directory(message: func.ServiceBusMessage) -> None:
    """A first subscriber, which logs each event. After an exception the message is delivered again."""
    event, aggregate = received_event(message.get_body()), aggregate_of(message.application_properties)
    _log.info("received %s %s of %s, sequence %s", event.action, event.id, aggregate, event.sequence)
