"""The order service: what it is called, what it keeps, and what it does when its events arrive."""

from cosmos_outbox import Event, Names, Service
from examples.orders.board import FORM, Board, entry_of, first, project
from examples.orders.events import ORDER_SHIPPED
from examples.orders.mail import LoggedMail, Mail
from examples.orders.order import Order

service = Service(
    "orders", aggregates=[Order], names=Names(database="orders", container="orders", topic="order-events")
)

BOARD = service.read_model(
    "order-board", of=Order, form=FORM, state_of=entry_of, project=project, first=first
)

mail: Mail = LoggedMail()


@service.effect("order-mails", of=Order, on={ORDER_SHIPPED})
async def tell_customer(event: Event) -> None:
    """One e-mail when the order is shipped; the event's id is its idempotency key, by which a repetition is known."""
    await mail.order_shipped(event.aggregate.id, idempotency_key=event.id)


def board() -> Board:
    """The board, for readers."""
    return Board(service().read_model(BOARD).listing)
