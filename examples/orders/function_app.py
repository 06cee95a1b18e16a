"""The triggers of the order service: each parses, calls and answers.

The Functions host tries HTTP routes in the alphabetical order of the functions' names: so the name of the catch-all
function sorts last.
"""

import azure.functions as func

from examples.orders import http as orders
from examples.orders.bootstrap import BOARD_SUBSCRIPTION, application
from examples.orders.http import answering
from infra import relay_feed, subscriber
from infra.http import catch_all, methods, request
from infra.http.effects import effect_functions
from infra.http.operator_functions import operator_functions
from infra.http.set_aside import set_aside_functions

EMAIL_SECONDS = 40.0
"""What a run of the timer may take: it runs every minute."""

SWEEP_SECONDS = 120.0
"""What a run of the sweep may take; the next run goes on from there."""

LISTS = ["set-aside", "mails/set-aside", "effects"]
"""What the subscribers have not done: the operations page shows each of these."""

app = catch_all.IndexedApp(http_auth_level=func.AuthLevel.FUNCTION)
# GET operations (the page), GET health, GET dependencies, GET instance, GET relay, GET history/{path}/{id}, GET parked,
# GET parked/{id}, POST parked/{id}/discard, POST parked/{path}/{id}/replay
app.register_functions(operator_functions(application, orders.OPERATIONS, lists=LISTS))
# GET effects, GET effects/{id}, POST effects/{id}/apply, POST effects/{id}/discard, POST effects/{id}/pass-missing
app.register_functions(effect_functions(lambda: application().mails, orders.OPERATIONS))
# Of the board, and of the e-mails with mails/ before each: GET subscriber, GET set-aside, GET set-aside/{id},
# POST set-aside/{id}/apply, POST set-aside/{id}/discard, POST dead-letters/collect
app.register_functions(set_aside_functions(application, orders.OPERATIONS))
app.register_functions(set_aside_functions(lambda: application().mails, orders.OPERATIONS, path="mails"))


@app.route(route="orders", methods=["POST"])
@answering.honouring("Idempotency-Key")
async def place_order(req: func.HttpRequest) -> func.HttpResponse:
    """POST /orders"""
    order, key = orders.new_order(req), request.idempotency_key(req)
    application().outbox.shedder.check()
    service, origin = application().orders, request.origin(req)
    if key is None:
        return orders.resource.created(await service.place(order, origin))
    keyed = request.keyed(req, application().callers.caller(req), key)
    receipt, replayed = await service.place_once(order, origin, keyed)
    return orders.resource.created(receipt, replayed=replayed)


@app.route(route="orders", methods=methods.READING)
@answering
async def list_orders(req: func.HttpRequest) -> func.HttpResponse:
    """GET /orders?pageSize=&continuationToken="""
    size, token = request.page_request(req)
    return orders.resource.listed(await application().orders.page(size, token, request.origin(req)))


@app.route(route="orders/{id}", methods=methods.READING)
@answering.honouring("If-None-Match")
async def get_order(req: func.HttpRequest) -> func.HttpResponse:
    """GET /orders/{id}"""
    order_id = orders.order_id(req)
    return orders.resource.found(req, await application().orders.read(order_id, request.origin(req)))


@app.route(route="orders/{id}/lines", methods=["POST"])
@answering.honouring("If-Match")
async def add_line(req: func.HttpRequest) -> func.HttpResponse:
    """POST /orders/{id}/lines"""
    order_id, line, versions = orders.order_id(req), orders.line(req), request.if_match(req)
    application().outbox.shedder.check()
    service, origin = application().orders, request.origin(req)
    return orders.resource.changed(await service.add_line(order_id, line, origin, if_match=versions))


@app.route(route="orders/{id}/ship", methods=["POST"])
@answering.honouring("If-Match")
async def ship_order(req: func.HttpRequest) -> func.HttpResponse:
    """POST /orders/{id}/ship"""
    order_id, versions = orders.order_id(req), request.if_match(req)
    application().outbox.shedder.check()
    service, origin = application().orders, request.origin(req)
    return orders.resource.changed(await service.ship(order_id, origin, if_match=versions))


@app.route(route="board", methods=methods.READING)
@answering
async def get_board(req: func.HttpRequest) -> func.HttpResponse:
    """GET /board?status=&pageSize=&continuationToken="""
    status, (size, token) = orders.board_status(req), request.page_request(req, "status")
    return orders.on_board(await application().board.page(status, size, token))


@app.route(route="{*path}")  # with every method; a list of azure-functions cannot name TRACE
@answering.honouring(*request.HONOURED)
async def unrouted(req: func.HttpRequest) -> func.HttpResponse:
    """Every call that no other function takes. The name of this function must sort last."""
    return catch_all.no_such_call(req, app, "orders are at /api/orders")


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


@app.service_bus_topic_trigger(
    arg_name="message",
    connection="SERVICEBUS",
    topic_name="%SERVICEBUS_TOPIC%",
    subscription_name="%SERVICEBUS_SUBSCRIPTION%",
    is_sessions_enabled=True,
)
async def order_mails(message: func.ServiceBusMessage, context: func.Context) -> None:
    """Topic -> e-mail. Returns when the e-mail is sent or the event is kept; otherwise raises after a wait."""
    await subscriber.receive(lambda: application().mails.subscriber, message, context)


@app.service_bus_topic_trigger(
    arg_name="message",
    connection="SERVICEBUS",
    topic_name="%SERVICEBUS_TOPIC%",
    subscription_name=BOARD_SUBSCRIPTION,
    is_sessions_enabled=True,
)
async def order_board(message: func.ServiceBusMessage, context: func.Context) -> None:
    """Topic -> board. Returns when the event is applied or set aside; otherwise raises after a wait."""
    await subscriber.receive(lambda: application().subscriber, message, context)


@app.timer_trigger(arg_name="timer", schedule="15 * * * * *")
async def tend_emails(timer: func.TimerRequest) -> None:
    """Every minute: sends the e-mails that wait, in order."""
    await application().mails.upkeep.run(seconds=EMAIL_SECONDS)


@app.timer_trigger(arg_name="timer", schedule="45 * * * * *")
async def watch_mails(timer: func.TimerRequest) -> None:
    """Every minute: collects the dead letters of the e-mails, and tries again what was set aside of them."""
    await application().mails.subscriber.watch()


@app.timer_trigger(arg_name="timer", schedule="50 * * * * *")
async def watch_set_aside(timer: func.TimerRequest) -> None:
    """Every minute: the same for the board."""
    await application().subscriber.watch()


@app.timer_trigger(arg_name="timer", schedule="0 */10 * * * *")
async def sweep_board(timer: func.TimerRequest) -> None:
    """Every ten minutes: compares more of the board with the orders, and heals what no event will."""
    await application().sweep.run(seconds=SWEEP_SECONDS)


@app.timer_trigger(arg_name="timer", schedule="0 */5 * * * *")
async def watch_relay(timer: func.TimerRequest) -> None:
    """Every five minutes: logs an error when events wait for too long, and makes missing leases again."""
    await application().outbox.observer.watch()


@app.timer_trigger(arg_name="timer", schedule="30 * * * * *")
async def tend_parked(timer: func.TimerRequest) -> None:
    """Every minute: sends parked events in whose way nothing stands, and discards what is parked for too long."""
    await application().outbox.parking.upkeep()
