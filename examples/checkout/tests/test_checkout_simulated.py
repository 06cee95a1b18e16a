"""Whatever fails, money, pieces and orders agree in the end, and no order stays open beyond its time."""

from datetime import datetime, timedelta
from random import Random
from uuid import uuid4

import pytest

from cosmos_outbox import Origin
from examples.checkout.article import Article, NewArticle
from examples.checkout.order import NewOrder, Order
from examples.checkout.payment import Payment, PaymentClosed
from examples.checkout.service import service
from examples.checkout.tests.at_rest import SUPPLY, agree
from outbox_simulation import simulate

ORIGIN = Origin("request-1")


async def shop(luck: Random, at: datetime) -> None:
    """An article, and some orders of it, which have little time."""
    article = Article.add(NewArticle(available=SUPPLY), id=uuid4(), at=at)
    await service().aggregates.create(article, ORIGIN)
    for _ in range(luck.randint(1, 2)):
        wanted = NewOrder(article_id=article.state.id, quantity=luck.randint(1, 3), amount=100)
        within = timedelta(seconds=luck.uniform(1, 12))
        await service().aggregates.create(Order.place(wanted, id=uuid4(), at=at, pay_within=within), ORIGIN)


async def pay(luck: Random, at: datetime) -> None:
    """Any payment, mostly one that is requested; the provider comes twice, or too late."""
    found = (await service().aggregates.page(Payment, 50, None, ORIGIN)).items
    wanted = [each for each in found if each.state.status == "requested"] or found
    if wanted:
        chosen = luck.choice(wanted).aggregate_id
        try:
            await service().aggregates.change(Payment, chosen, lambda each: each.settle(at=at), ORIGIN)
        except PaymentClosed:
            return


@pytest.mark.long  # test_checkout.py has any order of messages, and the other examples are simulated at every run
def test_whatever_fails_all_agrees_in_the_end() -> None:
    simulate(service, shop, pay, pay, pay, seeds=10, at_rest=agree)
