"""Orders over HTTP: a request becomes a checked value, and a result becomes an answer."""

from typing import Any
from uuid import UUID

import azure.functions as func

from cosmos_outbox import ListedPage
from cosmos_outbox.errors import AggregateNotFound
from cosmos_outbox.http import (
    Answering,
    FieldError,
    InvalidRequest,
    Resource,
    json_response,
    known,
    request,
    validated,
)
from examples.orders.board import BoardEntry, Status
from examples.orders.errors import OrderFull, OrderShipped
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order
from examples.orders.service import service


def _check_load() -> None:
    service().outbox.shedder.check()


answering = Answering([(OrderShipped, 409, "Conflict"), (OrderFull, 409, "Conflict")], check_load=_check_load)


def order_id(req: func.HttpRequest) -> UUID:
    """The id in the path. Raises AggregateNotFound when the id is no UUID, since no order can have such an id."""
    found = request.path_id(req)
    if found is None:
        raise AggregateNotFound("there is no such order: the id in the path must be a UUID")
    return found


def new_order(req: func.HttpRequest) -> NewOrder:
    """The order in the body. Raises InvalidRequest."""
    return validated(NewOrder, request.json_object(req, "application/json"))


def line(req: func.HttpRequest) -> Line:
    """The line in the body. Raises InvalidRequest."""
    return validated(Line, request.json_object(req, "application/json"))


def board_status(req: func.HttpRequest) -> Status | None:
    """The status in the query; None: all. Raises InvalidRequest."""
    wanted = request.query(req, *request.PAGE, "status").get("status")
    if wanted is not None and wanted not in list(Status):
        raise InvalidRequest(FieldError("status", f"must be {' or '.join(Status)}"))
    return None if wanted is None else Status(wanted)


def on_board(page: ListedPage[BoardEntry]) -> func.HttpResponse:
    """200 with a page of the board and the token of the next page."""
    items = [
        {
            "orderId": each.id,
            **each.state.model_dump(mode="json", by_alias=True),
            "lastSequence": each.sequence,
        }
        for each in page.items
    ]
    return json_response(200, {"items": items, "continuationToken": page.continuation_token})


def view(order: Order) -> dict[str, Any]:
    """An order as callers see it: without the fields that only this service or a later version of it needs."""
    document = known(order.state)
    del document["lastSequence"]
    return document


resource = Resource("orders", view)
"""The answers to calls on orders."""
