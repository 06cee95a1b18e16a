"""The triggers: each parses, calls and answers. Nothing happens at import but the listing of functions.

The Functions host tries HTTP routes in the alphabetical order of the functions' names
(https://github.com/Azure/azure-functions-host/issues/9876): the one that takes what no other takes must sort last.
"""

import logging
import re

import azure.functions as func

from infra import http, http_operations, relay_feed
from infra.bootstrap import application
from infra.documents import events_from_items
from infra.servicebus.subscriber import received_event

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)

_log = logging.getLogger("contacts.subscriber")


@app.route(route="contacts", methods=["POST"])
async def create_contact(req: func.HttpRequest) -> func.HttpResponse:
    """POST /contacts"""

    async def respond() -> func.HttpResponse:
        details, key = http.contact_details(req), http.idempotency_key(req)
        if key is None:
            return http.created(await application().contacts.create(details, http.origin(req)))
        receipt, replayed = await application().contacts.create_once(details, http.origin(req), key)
        return http.created(receipt, replayed=replayed)

    return await http.answer(respond)


@app.route(route="contacts", methods=["GET"])
async def list_contacts(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts?pageSize=&continuationToken="""

    async def respond() -> func.HttpResponse:
        size, token = http.page_request(req)
        return http.listed(await application().contacts.page(size, token, http.origin(req)))

    return await http.answer(respond)


@app.route(route="contacts/{id}", methods=["GET"])
async def get_contact(req: func.HttpRequest) -> func.HttpResponse:
    """GET /contacts/{id}"""

    async def respond() -> func.HttpResponse:
        contact_id = http.contact_id(req)
        return http.found(req, await application().contacts.read(contact_id, http.origin(req)))

    return await http.answer(respond)


@app.route(route="contacts/{id}", methods=["PATCH"])
async def patch_contact(req: func.HttpRequest) -> func.HttpResponse:
    """PATCH /contacts/{id}"""

    async def respond() -> func.HttpResponse:
        contact_id, patch, versions = http.contact_id(req), http.merge_patch(req), http.if_match(req)
        receipt = await application().contacts.patch(contact_id, patch, http.origin(req), if_match=versions)
        return http.changed(receipt)

    return await http.answer(respond)


@app.route(route="contacts/{id}", methods=["DELETE"])
async def delete_contact(req: func.HttpRequest) -> func.HttpResponse:
    """DELETE /contacts/{id}"""

    async def respond() -> func.HttpResponse:
        contact_id, versions = http.contact_id(req), http.if_match(req)
        await application().contacts.delete(contact_id, http.origin(req), if_match=versions)
        return http.deleted()

    return await http.answer(respond)


@app.route(route="health", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
async def health(req: func.HttpRequest) -> func.HttpResponse:
    """GET /health: 200 when the store answers, 503 when it does not."""

    async def respond() -> func.HttpResponse:
        await application().check()
        return http.healthy()

    return await http.answer(respond)


@app.route(route="parked", methods=["GET"], auth_level=func.AuthLevel.ADMIN)
async def list_parked(req: func.HttpRequest) -> func.HttpResponse:
    """GET /parked?pageSize=&continuationToken=: the events that cannot be sent, and those that wait behind them."""

    async def respond() -> func.HttpResponse:
        size, token = http.page_request(req)
        return http_operations.parked_listed(await application().parking.page(size, token))

    return await http.answer(respond)


@app.route(route="parked/{id}", methods=["GET"], auth_level=func.AuthLevel.ADMIN)
async def get_parked(req: func.HttpRequest) -> func.HttpResponse:
    """GET /parked/{id}: one of them, with its document."""

    async def respond() -> func.HttpResponse:
        return http_operations.parked_shown(await application().parking.show(http_operations.parking_id(req)))

    return await http.answer(respond)


@app.route(route="parked/{id}/discard", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
async def discard_parked(req: func.HttpRequest) -> func.HttpResponse:
    """POST /parked/{id}/discard {"reason": ...}: give one up for good."""

    async def respond() -> func.HttpResponse:
        parking_id, reason = http_operations.parking_id(req), http_operations.discard_reason(req)
        await application().parking.discard(parking_id, reason)
        return http_operations.discarded()

    return await http.answer(respond)


@app.route(route="parked/contacts/{id}/replay", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
async def replay_parked(req: func.HttpRequest) -> func.HttpResponse:
    """POST /parked/contacts/{id}/replay: send a contact's parked events in order."""

    async def respond() -> func.HttpResponse:
        return http_operations.replayed(await application().parking.replay(str(http.contact_id(req))))

    return await http.answer(respond)


@app.route(route="relay", methods=["GET"], auth_level=func.AuthLevel.ADMIN)
async def get_relay(req: func.HttpRequest) -> func.HttpResponse:
    """GET /relay: how far behind the relay is, and how many contacts are parked."""

    async def respond() -> func.HttpResponse:
        return http_operations.relay_status(await application().observer.status())

    return await http.answer(respond)


@app.route(route="{*path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def unrouted(req: func.HttpRequest) -> func.HttpResponse:
    """Whatever no other function takes; its name sorts last."""
    return http.no_such_call(req, _METHODS)


_METHODS = {
    re.compile("contacts"): "GET, POST",
    re.compile("contacts/[^/]+"): "DELETE, GET, PATCH",
    re.compile("health|relay"): "GET",
    re.compile("parked(/[^/]+)?"): "GET",
    re.compile("parked/([^/]+/discard|contacts/[^/]+/replay)"): "POST",
}


@app.cosmos_db_trigger(
    arg_name="documents",
    connection="COSMOS",
    database_name="%COSMOS_DATABASE%",
    container_name="%COSMOS_CONTAINER%",
    lease_connection="COSMOS",
    lease_database_name="%COSMOS_DATABASE%",
    lease_container_name="%COSMOS_LEASE_CONTAINER%",
    lease_container_prefix=relay_feed.LEASE_PREFIX,
    create_lease_container_if_not_exists=False,
    start_from_beginning=True,  # type: ignore[arg-type]  # the library's own annotation is wrong: the host takes a bool
    feed_poll_delay=relay_feed.POLL_DELAY_MS,
    lease_acquire_interval=relay_feed.LEASE_ACQUIRE_MS,
    lease_renew_interval=relay_feed.LEASE_RENEW_MS,
    lease_expiration_interval=relay_feed.LEASE_EXPIRATION_MS,
    max_items_per_invocation=relay_feed.MAX_ITEMS,
)
# Without an endless retry the host checkpoints past a failed batch, and its events are gone.
@app.retry(
    strategy="exponential_backoff",
    max_retry_count="-1",
    minimum_interval="00:00:01",
    maximum_interval="00:01:00",
)
async def relay(documents: func.DocumentList) -> None:
    """Change feed -> topic. It returns when Service Bus has accepted every event, or raises."""
    await application().relay.forward(events_from_items(documents))


@app.timer_trigger(arg_name="timer", schedule="0 */5 * * * *")
async def watch_relay(timer: func.TimerRequest) -> None:
    """Every five minutes: an error in the log when events are about to expire unforwarded."""
    await application().observer.watch()


@app.service_bus_topic_trigger(
    arg_name="message",
    connection="SERVICEBUS",
    topic_name="%SERVICEBUS_TOPIC%",
    subscription_name="%SERVICEBUS_SUBSCRIPTION%",
    is_sessions_enabled=True,
)
async def contact_directory(message: func.ServiceBusMessage) -> None:
    """A subscriber, for a start: it logs what arrived. An exception here brings the message again."""
    event = received_event(message.get_body())
    _log.info(
        "received %s %s of contact %s, sequence %d", event.action, event.id, event.contact_id, event.sequence
    )
