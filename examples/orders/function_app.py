"""The calls on orders and on their board; relay, subscribers, timers and operators' calls come with the app."""

import azure.functions as func

from cosmos_outbox import functions
from cosmos_outbox.http import READING, request
from examples.orders import http
from examples.orders.http import answering
from examples.orders.service import board, orders, service

app = functions.app(service)


@app.route(route="orders", methods=["POST"])
@answering.honouring("Idempotency-Key")
async def place_order(req: func.HttpRequest) -> func.HttpResponse:
    """POST /orders"""
    order, key, origin = http.new_order(req), request.idempotency_key(req), request.origin(req)
    if key is None:
        return http.resource.created(await orders().place(order, origin))
    receipt, replayed = await orders().place_once(order, origin, request.keyed(req, service().settings, key))
    return http.resource.created(receipt, replayed=replayed)


@app.route(route="orders", methods=READING)
@answering
async def list_orders(req: func.HttpRequest) -> func.HttpResponse:
    """GET /orders?pageSize=&continuationToken="""
    size, token = request.page_request(req)
    return http.resource.listed(await orders().page(size, token, request.origin(req)))


@app.route(route="orders/{id}", methods=READING)
@answering.honouring("If-None-Match")
async def get_order(req: func.HttpRequest) -> func.HttpResponse:
    """GET /orders/{id}"""
    newest = request.wants_newest(req)
    return http.resource.found(
        req, await orders().read(http.order_id(req), request.origin(req), newest=newest)
    )


@app.route(route="orders/{id}/lines", methods=["POST"])
@answering.honouring("If-Match")
async def add_line(req: func.HttpRequest) -> func.HttpResponse:
    """POST /orders/{id}/lines"""
    order_id, line, versions = http.order_id(req), http.line(req), request.if_match(req)
    receipt = await orders().add_line(order_id, line, request.origin(req), if_match=versions)
    return http.resource.changed(receipt)


@app.route(route="orders/{id}/ship", methods=["POST"])
@answering.honouring("If-Match")
async def ship_order(req: func.HttpRequest) -> func.HttpResponse:
    """POST /orders/{id}/ship"""
    order_id, versions = http.order_id(req), request.if_match(req)
    return http.resource.changed(await orders().ship(order_id, request.origin(req), if_match=versions))


@app.route(route="board", methods=READING)
@answering
async def get_board(req: func.HttpRequest) -> func.HttpResponse:
    """GET /board?status=&pageSize=&continuationToken="""
    status, (size, token) = http.board_status(req), request.page_request(req, "status")
    return http.on_board(await board().page(status, size, token))
