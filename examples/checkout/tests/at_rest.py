"""What holds when every message has come and nothing is open: money, pieces and orders agree."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cosmos_outbox import Aggregate
from examples.checkout.article import Article
from examples.checkout.order import Order
from examples.checkout.payment import Payment

SUPPLY = 5
"""Pieces of each article, in the tests."""

FITS: Mapping[str, Sequence[str | None]] = {
    "placed": [],
    "reserved": ["requested"],
    "paid": ["settled"],
    "cancelled": [None, "void", "refunded"],
}
"""What the payment of an order may be."""


def agree(found: Sequence[Aggregate[Any]]) -> Iterator[str]:
    """What is wrong."""
    orders = [each.state for each in found if isinstance(each, Order)]
    articles = [each.state for each in found if isinstance(each, Article)]
    payments = {each.state.order_id: each.state.status for each in found if isinstance(each, Payment)}
    for article in articles:
        mine = [each for each in orders if each.article_id == article.id]
        held = {str(each.id): each.quantity for each in mine if each.status == "reserved"}
        sold = sum(each.quantity for each in mine if each.status == "paid")
        if (dict(article.held), article.sold) != (held, sold):
            yield f"article {article.id} holds {article.held} and sold {article.sold}, not {held} and {sold}"
        if article.available + sum(article.held.values()) + article.sold != SUPPLY:
            yield f"article {article.id} has {article.available} pieces left"
    for order in orders:
        paid = payments.get(order.id)
        if paid not in FITS[order.status]:
            yield f"order {order.id} is {order.status}, and its payment {paid}"
