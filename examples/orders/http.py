"""Orders and gifts are declared; a call on the board becomes a checked value, and a page of it an answer."""

from cosmos_outbox import ListedPage
from cosmos_outbox.http import (
    Action,
    Answer,
    FieldError,
    InvalidRequest,
    Request,
    Resource,
    json_response,
    request,
)
from examples.orders.board import BoardEntry, Status
from examples.orders.errors import OrderFull, OrderShipped
from examples.orders.events import Line
from examples.orders.gift import Gift, NewGift
from examples.orders.order import NewOrder, Order

orders = Resource(
    "orders",
    Order,
    new=NewOrder,
    create=Order.place,
    actions=[Action("lines", Order.add_line, body=Line), Action("ship", Order.ship)],
    errors={OrderShipped: 409, OrderFull: 409},
)
"""An order is placed, gets lines and is shipped; nobody changes or deletes one."""

gifts = Resource("gifts", Gift, new=NewGift, create=Gift.give)
"""A gift's message adds its line to the order."""


def board_status(req: Request) -> Status | None:
    """The status in the query; None: all. Raises InvalidRequest."""
    wanted = request.query(req, *request.PAGE, "status").get("status")
    if wanted is not None and wanted not in list(Status):
        raise InvalidRequest(FieldError("status", f"must be {' or '.join(Status)}"))
    return None if wanted is None else Status(wanted)


def on_board(page: ListedPage[BoardEntry]) -> Answer:
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
