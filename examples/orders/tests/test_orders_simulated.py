"""Whatever fails, no event of an order is lost, the board shows every order as it is, and each gift is one line."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cosmos_outbox import Aggregate
from examples.orders.errors import OrderError
from examples.orders.events import Line
from examples.orders.gift import Gift, NewGift
from examples.orders.order import NewOrder, Order
from examples.orders.service import service
from examples.orders.tests.changes import ORIGIN
from outbox_simulation import Commands, simulate

RIBBON = Line(sku="ribbon", quantity=1)


def place(luck: Random, at: datetime) -> Order:
    return Order.place(NewOrder(customer=luck.choice(["Contoso", "Adatum"]), lines=(_line(luck),)), at=at)


def add_line(order: Order, luck: Random, at: datetime) -> None:
    order.add_line(_line(luck), at=at)


def ship(order: Order, luck: Random, at: datetime) -> None:
    order.ship(at=at)


async def give(luck: Random, at: datetime) -> None:
    """To any order, whose gifts are all alike."""
    if orders := (await service().aggregates.page(Order, 50, None, ORIGIN)).items:
        gift = NewGift(order_id=luck.choice(orders).state.id, line=RIBBON)
        await service().aggregates.create(Gift.give(gift, at=at), ORIGIN)


def _line(luck: Random) -> Line:
    return Line(sku=luck.choice(["A-1", "B-2"]), quantity=luck.randint(1, 9))


def each_gift_is_one_line(found: Sequence[Aggregate[Any]]) -> Iterator[str]:
    """What is wrong; a gift that came after its order was shipped is no line."""
    given = Counter(each.state.order_id for each in found if isinstance(each, Gift))
    for order in (each.state for each in found if isinstance(each, Order)):
        lines, gifts = order.lines.count(RIBBON), given[order.id]
        if lines > gifts or (order.shipped_at is None and lines < gifts):
            yield f"order {order.id} has {lines} lines of {gifts} gifts"


@pytest.mark.long
def test_under_faults_no_event_is_lost_and_each_gift_is_one_line() -> None:
    commands = Commands(Order, create=place, change=[add_line, add_line, ship], refuses=(OrderError,))
    simulate(service, commands, give, forms=Path(__file__).with_name("forms"), at_rest=each_gift_is_one_line)
