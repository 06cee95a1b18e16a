"""The process: what each event of one aggregate changes in another. No step is in two transactions.

::

    OrderPlaced     -> article: hold the pieces      ArticleHeld    -> order: reserved
                                                     ArticleMissing -> order: cancelled
    OrderReserved   -> payment: requested            settled        -> order: paid
    OrderPaid       -> article: sold
    OrderCancelled  -> article: released; payment: void, or refunded

An order that nobody pays cancels itself. So payment and deadline may come at once: the order takes the first of them,
and what was settled for a cancelled order is refunded, since ``OrderCancelled`` comes to the payment in any case.
"""

from uuid import UUID

from cosmos_outbox import Event, Names, Service
from examples.checkout.article import Article, ArticleHeld, ArticleMissing, ArticleReleased, ArticleSold
from examples.checkout.order import OPEN, Order, OrderCancelled, OrderPaid, OrderReserved
from examples.checkout.payment import Payment, Request, payment_of

service = Service(
    "checkout",
    aggregates=[Order, Article, Payment],
    names=Names(database="checkout", container="checkout", topic="checkout-events"),
    events=[
        OrderReserved,
        OrderPaid,
        OrderCancelled,
        ArticleHeld,
        ArticleMissing,
        ArticleReleased,
        ArticleSold,
    ],
)


@service.reaction(
    "article-orders", of=Order, to=Article, target=lambda event: event.data["articleId"], order="newest"
)
def keep_pieces(article: Article | None, event: Event) -> None:
    """A cancellation that overtakes its order leaves nothing to be held: newest wins."""
    order_id = UUID(event.aggregate.id)
    if article is None:  # nobody holds anything, and the order's own deadline ends it
        return
    match event.action:
        case "OrderPlaced":
            article.hold(event.data["quantity"], order_id, at=event.created_at)
        case "OrderPaid":
            article.sell(order_id, at=event.created_at)
        case "OrderCancelled":
            article.release(order_id, at=event.created_at)


@service.reaction(
    "payment-orders",
    of=Order,
    to=Payment,
    target=lambda event: str(payment_of(UUID(event.aggregate.id))),
    order="newest",
)
def ask_for_money(payment: Payment | None, event: Event) -> Payment | None:
    """Once the pieces are held; taken back with the order."""
    if payment is None and event.action == "OrderReserved":
        request = Request(order_id=UUID(event.aggregate.id), amount=event.data["amount"])
        return Payment.request(request, at=event.created_at)
    if payment is not None and event.action == "OrderCancelled":
        payment.take_back(at=event.created_at)
    return None


@service.reaction(
    "order-articles", of=Article, to=Order, target=lambda event: event.data.get("orderId"), order="any"
)
def go_on(order: Order | None, event: Event) -> None:
    """The article holds the pieces, or has too few."""
    if order is None:
        return
    if event.action == "ArticleHeld":
        order.reserve(at=event.created_at)
    elif event.action == "ArticleMissing" and order.state.status in OPEN:
        order.cancel("too few pieces", at=event.created_at)


@service.reaction(
    "order-payments", of=Payment, to=Order, target=lambda event: event.data["orderId"], order="any"
)
def take_payment(order: Order | None, event: Event) -> None:
    """The money came: in time, or not."""
    if order is not None and event.data.get("status") == "settled":
        order.pay(at=event.created_at)
