"""A gift's line comes to its order once, whatever comes again and whatever answer is lost."""

from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import UUID, uuid4

import pytest

from cosmos_outbox import utc_now
from cosmos_outbox.errors import StoreUnavailable
from cosmos_outbox.testing import InMemory, in_memory, message
from examples.orders.events import Line
from examples.orders.gift import Gift, NewGift
from examples.orders.order import MOST_LINES, NewOrder, Order
from examples.orders.service import add_gift, service
from examples.orders.tests.changes import ORIGIN, TWO_A, placed, ship

RIBBON = Line(sku="ribbon", quantity=1)


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(service) as made:
        yield made


async def give(order_id: str) -> None:
    await service().aggregates.create(
        Gift.give(NewGift(order_id=UUID(order_id), line=RIBBON), at=utc_now()), ORIGIN
    )


async def lines(order_id: str) -> list[Line]:
    return [*(await service().aggregates.read(Order, order_id, ORIGIN)).aggregate.state.lines]


async def test_each_gift_is_one_line_and_one_event_though_messages_repeat(memory: InMemory) -> None:
    order_id = await placed()
    await give(order_id)
    await give(order_id)
    first, second = (each for each in memory.events if each.action == "GiftGivenEvent")
    assert await memory.deliver(second, first, first, second, to=add_gift) == []
    assert await lines(order_id) == [TWO_A, RIBBON, RIBBON]
    added = [each for each in memory.events if each.action == "OrderLineAddedEvent"]
    assert [(each.sequence, each.data["causationId"]) for each in added] == [(2, second.id), (3, first.id)]


async def test_a_gift_is_one_line_though_its_answer_was_lost_and_it_comes_again(memory: InMemory) -> None:
    order_id = await placed()
    await give(order_id)
    memory.faults.answer_lost()
    memory.faults.throttled()
    gift = memory.events[-1]
    for _ in range(3):
        with suppress(StoreUnavailable):
            await memory.deliver(gift, to=add_gift)
    assert memory.faults.pending == 0
    assert await lines(order_id) == [TWO_A, RIBBON]


async def test_an_order_that_is_on_its_way_stays_as_it_is(memory: InMemory) -> None:
    order_id = await placed()
    await give(order_id)
    await ship(order_id)
    assert await memory.deliver(to=add_gift) == []
    assert await lines(order_id) == [TWO_A]


async def test_a_gift_for_a_missing_or_full_order_is_refused_with_a_reason(memory: InMemory) -> None:
    full = Order.place(NewOrder(customer="Contoso", lines=(TWO_A,) * MOST_LINES), at=utc_now())
    await service().aggregates.create(full, ORIGIN)
    line = {"sku": "ribbon", "quantity": 1}
    gifts = [
        message(("gift", str(uuid4())), "GiftGivenEvent", 1, data={"orderId": order_id, "line": line})
        for order_id in (full.aggregate_id, str(uuid4()))
    ]
    records = await memory.deliver(*gifts, to=add_gift)
    assert [(each.state.value, each.reason) for each in records] == [
        ("refused", "an order has at most 50 lines: place another order"),
        ("refused", "there is no such order: discard the gift"),
    ]
    assert await lines(full.aggregate_id) == [TWO_A] * MOST_LINES
