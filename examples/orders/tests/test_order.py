"""An order raises exactly the events of its changes, numbered without a gap."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from cosmos_outbox.testing import in_memory, raised, stored
from examples.orders.errors import OrderFull, OrderShipped
from examples.orders.events import Line
from examples.orders.order import MOST_LINES, NewOrder, Order
from examples.orders.service import service
from examples.orders.tests.changes import add_line, ship

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, tzinfo=UTC)
TWO_A, ONE_B, ONE_C = (
    Line(sku="A-1", quantity=2), Line(sku="B-2", quantity=1), Line(sku="C-3", quantity=1)
)  # fmt: skip


def placed(*lines: Line) -> Order:
    return Order.place(NewOrder(customer="Contoso", lines=lines or (TWO_A,)), at=NOON)


def published(order: Order) -> list[tuple[str, int]]:
    return [(event.action, event.sequence) for event in raised(order)]


def test_each_added_line_is_an_event_and_shipping_is_one_after_them() -> None:
    order = stored(placed())
    order.add_line(ONE_B, at=LATER)
    order.add_line(ONE_C, at=LATER)
    order.ship(at=LATER)
    assert published(order) == [
        ("OrderLineAddedEvent", 2), ("OrderLineAddedEvent", 3), ("OrderShippedEvent", 4)
    ]  # fmt: skip
    assert [event.model_dump()["line"]["sku"] for event in raised(order)[:2]] == ["B-2", "C-3"]
    after = stored(order).state
    assert after.lines == (TWO_A, ONE_B, ONE_C)
    assert (after.shipped_at, after.last_sequence) == (LATER, 4)


def test_a_line_added_to_an_unstored_order_is_its_second_event() -> None:
    order = placed()
    order.add_line(ONE_B, at=NOON)
    assert published(order) == [("OrderPlacedEvent", 1), ("OrderLineAddedEvent", 2)]


def test_the_same_line_twice_is_two_events() -> None:
    order = stored(placed())
    order.add_line(TWO_A, at=LATER)
    order.add_line(TWO_A, at=LATER)
    assert [sequence for _, sequence in published(order)] == [2, 3]


def test_a_shipped_order_takes_no_change() -> None:
    order = stored(placed())
    order.ship(at=LATER)
    order = stored(order)
    with pytest.raises(OrderShipped):
        order.add_line(ONE_B, at=LATER)
    with pytest.raises(OrderShipped):
        order.ship(at=LATER)
    assert published(order) == []


def test_an_order_has_a_limited_number_of_lines() -> None:
    order = placed(*[TWO_A] * MOST_LINES)
    with pytest.raises(OrderFull, match="place another"):
        order.add_line(ONE_B, at=NOON)


@pytest.mark.parametrize(
    "data",
    [
        {"customer": " "},
        {"customer": "x" * 101},
        {"customer": "Con\ntoso"},
        {"customer": "Con\x00toso"},
        {"customer": "Con\u2028toso"},
        {"lines": []},
        {"lines": [{"sku": "A-1", "quantity": 2}] * (MOST_LINES + 1)},
        {"lines": [{"sku": "", "quantity": 2}]},
        {"lines": [{"sku": "x" * 41, "quantity": 2}]},
        {"lines": [{"sku": "A\x1b[31m-1", "quantity": 2}]},
        {"lines": [{"sku": "A-1", "quantity": 0}]},
        {"lines": [{"sku": "A-1", "quantity": 1001}]},
    ],
)
async def test_a_rule_that_callers_must_keep_makes_no_stored_order_unreadable(data: dict[str, Any]) -> None:
    """A team lowers a limit; orders that were stored before are still read, changed and shipped."""
    whole = {"customer": "Contoso", "lines": [{"sku": "A-1", "quantity": 2}], **data}
    with pytest.raises(ValidationError):
        NewOrder.model_validate(whole)
    order_id = uuid4()
    kept = {**whole, "id": str(order_id), "createdAt": "2026-03-01T12:00:00Z", "lastSequence": 1}
    document = {"id": str(order_id), "partitionKey": str(order_id), "type": "order", "data": kept, "ttl": -1}
    async with in_memory(service) as memory:
        await memory.put(document)
        if len(whole["lines"]) > MOST_LINES:
            with pytest.raises(OrderFull):
                await add_line(str(order_id), ONE_B)
        await ship(str(order_id))
        assert [(event.action, event.sequence) for event in memory.events] == [("OrderShippedEvent", 2)]


def test_spaces_around_what_a_customer_typed_are_not_stored() -> None:
    order = NewOrder.model_validate({"customer": " Contoso ", "lines": [{"sku": " A-1 ", "quantity": 2}]})
    assert (order.customer, order.lines[0].sku) == ("Contoso", "A-1")
