"""The order service: what it is called, what it keeps, and what it does when its events arrive."""

from cosmos_outbox import Event, Names, Service
from cosmos_outbox.errors import ReactionRefused
from examples.orders.board import FORM, Board, entry_of, first, project
from examples.orders.errors import OrderFull
from examples.orders.events import ORDER_SHIPPED, Line
from examples.orders.gift import Gift
from examples.orders.mail import LoggedMail, Mail
from examples.orders.order import Order

service = Service(
    "orders",
    aggregates=[Order, Gift],
    names=Names(database="orders", container="orders", topic="order-events"),
)

BOARD = service.read_model(
    "order-board", of=Order, form=FORM, state_of=entry_of, project=project, first=first
)

mail: Mail = LoggedMail()


@service.effect("order-mails", of=Order, on={ORDER_SHIPPED})
async def notify_customer(event: Event) -> None:
    """One e-mail when the order is shipped; the event's id is its idempotency key, by which a repetition is known."""
    await mail.order_shipped(event.aggregate.id, idempotency_key=event.id)


@service.reaction("order-gifts", of=Gift, to=Order, target=lambda event: event.data["orderId"], order="any")
def add_gift(order: Order | None, event: Event) -> None:
    """One line for each gift, whatever comes again; an order that is on its way stays as it is."""
    if order is None:
        raise ReactionRefused("there is no such order: discard the gift")
    if order.state.shipped_at is None:
        try:
            order.add_line(Line.model_validate(event.data["line"]), at=event.created_at)
        except OrderFull as full:
            raise ReactionRefused(str(full)) from full


def board() -> Board:
    """The board, for readers."""
    return Board(service().read_model(BOARD).listing)
