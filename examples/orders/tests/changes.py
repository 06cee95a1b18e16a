"""What the calls do with an order, for tests that make none."""

from cosmos_outbox import Origin, utc_now
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order
from examples.orders.service import service

ORIGIN = Origin("request-1")
TWO_A, FIVE_B = Line(sku="A-1", quantity=2), Line(sku="B-2", quantity=5)


async def placed(customer: str = "Contoso") -> str:
    """The id of a new order of two pieces."""
    order = Order.place(NewOrder(customer=customer, lines=(TWO_A,)), at=utc_now())
    return (await service().aggregates.create(order, ORIGIN)).aggregate.aggregate_id


async def add_line(order_id: str, line: Line = FIVE_B) -> None:
    await service().aggregates.change(
        Order, order_id, lambda order: order.add_line(line, at=utc_now()), ORIGIN
    )


async def ship(order_id: str) -> None:
    await service().aggregates.change(Order, order_id, lambda order: order.ship(at=utc_now()), ORIGIN)
