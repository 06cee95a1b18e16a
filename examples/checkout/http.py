"""The calls on orders, articles and payments, as they are declared."""

import os
from datetime import datetime, timedelta
from uuid import UUID

from cosmos_outbox.http import Action, Resource
from examples.checkout.article import Article, NewArticle
from examples.checkout.order import PAY_WITHIN, NewOrder, Order, OrderClosed
from examples.checkout.payment import Payment, PaymentClosed, Request


def _place(order: NewOrder, *, id: UUID, at: datetime) -> Order:  # noqa: A002 - its id
    seconds = float(os.environ.get("PAY_WITHIN_SECONDS", PAY_WITHIN.total_seconds()))
    return Order.place(order, id=id, at=at, pay_within=timedelta(seconds=seconds))


def _cancel(order: Order, *, at: datetime) -> None:
    order.cancel("by the customer", at=at)


articles = Resource("articles", Article, new=NewArticle, create=Article.add)
orders = Resource(
    "orders",
    Order,
    new=NewOrder,
    create=_place,
    actions=[Action("cancel", _cancel)],
    errors={OrderClosed: 409},
)
payments: Resource[Payment, Request] = Resource(
    "payments", Payment, actions=[Action("settle", Payment.settle)], errors={PaymentClosed: 409}
)
"""The provider of payments calls ``settle``."""
