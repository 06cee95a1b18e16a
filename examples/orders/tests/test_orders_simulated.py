"""Whatever fails, no event of an order is lost, and the board shows every order as it is."""

from datetime import datetime
from pathlib import Path
from random import Random

from cosmos_outbox.testing import Commands, simulate
from examples.orders.errors import OrderError
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order
from examples.orders.service import service


def place(luck: Random, at: datetime) -> Order:
    return Order.place(NewOrder(customer=luck.choice(["Contoso", "Adatum"]), lines=(_line(luck),)), at=at)


def add_line(order: Order, luck: Random, at: datetime) -> None:
    order.add_line(_line(luck), at=at)


def ship(order: Order, luck: Random, at: datetime) -> None:
    order.ship(at=at)


def _line(luck: Random) -> Line:
    return Line(sku=luck.choice(["A-1", "B-2"]), quantity=luck.randint(1, 9))


def test_whatever_fails_no_event_is_lost_and_the_board_is_right() -> None:
    commands = Commands(Order, create=place, change=[add_line, add_line, ship], refuses=(OrderError,))
    simulate(service, commands, forms=Path(__file__).with_name("forms"))
