"""The process in memory: each way that an order can take, and any order of its messages."""

from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox import Aggregate, Origin, utc_now
from cosmos_outbox.errors import AggregateNotFound
from cosmos_outbox.testing import InMemory, in_memory
from examples.checkout.article import Article, NewArticle
from examples.checkout.order import NewOrder, Order, OrderClosed
from examples.checkout.payment import Payment, PaymentClosed, payment_of
from examples.checkout.service import service
from examples.checkout.tests.at_rest import SUPPLY, agree

ORIGIN = Origin("request-1")


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(service) as made:
        yield made


async def listed() -> UUID:
    article = uuid4()
    await service().aggregates.create(
        Article.add(NewArticle(available=SUPPLY), id=article, at=utc_now()), ORIGIN
    )
    return article


async def placed(article: UUID, quantity: int = 2) -> UUID:
    order = uuid4()
    wanted = NewOrder(article_id=article, quantity=quantity, amount=100)
    await service().aggregates.create(Order.place(wanted, id=order, at=utc_now()), ORIGIN)
    return order


async def settle(order: UUID) -> None:
    payment = str(payment_of(order))
    await service().aggregates.change(Payment, payment, lambda each: each.settle(at=utc_now()), ORIGIN)


async def found(memory: InMemory) -> list[Aggregate[Any]]:
    kinds = {each.aggregate_type: each for each in service.aggregates}
    return [
        (await service().aggregates.read(kinds[each["type"]], each["id"], ORIGIN)).aggregate
        for each in memory.documents
        if each["type"] in kinds
    ]


async def statuses(memory: InMemory, order: UUID) -> tuple[str, str | None]:
    """Of the order and of its payment; whether all agrees is looked at too."""
    assert [*agree(await found(memory))] == []
    one = await service().aggregates.read(Order, str(order), ORIGIN)
    try:
        payment = await service().aggregates.read(Payment, str(payment_of(order)), ORIGIN)
    except AggregateNotFound:
        return one.aggregate.state.status, None
    return one.aggregate.state.status, payment.aggregate.state.status


def published(memory: InMemory, kind: str) -> list[str]:
    return [each.action for each in memory.events if each.aggregate.type == kind]


async def test_the_events_of_an_order_that_is_paid_and_of_one_that_is_cancelled(memory: InMemory) -> None:
    article = await listed()
    paid = await placed(article)
    assert await memory.deliver() == []
    await settle(paid)
    assert await memory.deliver() == []
    assert published(memory, "order") == ["OrderPlaced", "OrderReserved", "OrderPaid"]
    assert published(memory, "payment") == ["PaymentRequested", "PaymentMoved"]
    assert published(memory, "article") == ["ArticleListed", "ArticleHeld", "ArticleSold"]
    cancelled, refused = await placed(article, SUPPLY - 2), await placed(article, 1)
    assert await memory.deliver() == []
    await service().aggregates.change(
        Order, str(cancelled), lambda each: each.cancel("by the customer", at=utc_now()), ORIGIN
    )
    assert await memory.deliver() == []
    assert published(memory, "article")[3:] == ["ArticleHeld", "ArticleMissing", "ArticleReleased"]
    assert await statuses(memory, cancelled) == ("cancelled", "void")
    assert await statuses(memory, refused) == ("cancelled", None)


async def test_an_order_that_is_paid_in_time_is_sold(memory: InMemory) -> None:
    order = await placed(await listed())
    assert await memory.deliver() == []
    assert await statuses(memory, order) == ("reserved", "requested")
    await settle(order)
    assert await memory.deliver() == []
    memory.clock.pass_by(hours=1)
    await memory.upkeep()
    assert await memory.deliver() == []
    assert await statuses(memory, order) == ("paid", "settled")
    with pytest.raises(PaymentClosed):
        await settle(order)


async def test_an_unpaid_order_cancels_itself_and_gives_its_pieces_back(memory: InMemory) -> None:
    article = await listed()
    order = await placed(article, SUPPLY)
    assert await memory.deliver() == []
    memory.clock.pass_by(minutes=29)
    await memory.upkeep()
    assert await statuses(memory, order) == ("reserved", "requested")
    memory.clock.pass_by(minutes=2)
    await memory.upkeep()
    assert await memory.deliver() == []
    assert await statuses(memory, order) == ("cancelled", "void")
    assert [each.data["reason"] for each in memory.events if each.action == "OrderCancelled"] == [
        "not paid in time"
    ]
    other = await placed(article, SUPPLY)
    assert await memory.deliver() == []
    assert await statuses(memory, other) == ("reserved", "requested")


async def test_money_that_comes_too_late_is_given_back(memory: InMemory) -> None:
    order = await placed(await listed())
    assert await memory.deliver() == []
    await settle(order)
    memory.clock.pass_by(hours=1)
    await memory.upkeep()  # before the message of the payment has come
    assert await memory.deliver() == []
    assert await statuses(memory, order) == ("cancelled", "refunded")


async def test_too_few_pieces_cancel_an_order(memory: InMemory) -> None:
    order = await placed(await listed(), SUPPLY + 1)
    assert await memory.deliver() == []
    assert await statuses(memory, order) == ("cancelled", None)


async def test_an_order_of_no_article_ends_with_its_deadline(memory: InMemory) -> None:
    order = await placed(uuid4())
    assert await memory.deliver() == []
    memory.clock.pass_by(hours=1)
    await memory.upkeep()
    assert await memory.deliver() == []
    assert await statuses(memory, order) == ("cancelled", None)


async def test_a_paid_order_is_not_cancelled(memory: InMemory) -> None:
    order = await placed(await listed())
    assert await memory.deliver() == []
    await settle(order)
    assert await memory.deliver() == []
    with pytest.raises(OrderClosed, match="the order is paid"):
        await service().aggregates.change(
            Order, str(order), lambda each: each.cancel("x", at=utc_now()), ORIGIN
        )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
async def test_messages_deadlines_and_payments_in_any_order_end_in_agreement(
    memory: InMemory, seed: int
) -> None:
    luck = Random(seed)
    article = await listed()
    orders = [await placed(article, luck.randint(1, 3)) for _ in range(4)]
    for _ in range(40):
        match luck.randint(1, 8):
            case 1:
                memory.clock.pass_by(minutes=luck.randint(0, 12))
                await memory.upkeep()
            case 2:
                payments = [each for each in await found(memory) if isinstance(each, Payment)]
                if payments and (chosen := luck.choice(payments)).state.status == "requested":
                    await settle(chosen.state.order_id)
            case _:  # some message comes, whatever came before it; some come twice
                assert await memory.deliver(luck.choice(memory.events)) == []
    memory.clock.pass_by(hours=1)
    await memory.upkeep()
    assert await memory.deliver() == []
    assert [*agree(await found(memory))] == []
    assert {(await statuses(memory, order))[0] for order in orders} <= {"paid", "cancelled"}
