"""The Order aggregate: lines are added until the order is shipped, and nothing changes afterwards.

This aggregate shows both ways to raise an event. ``shipped_at`` is a property: setting the property raises the event
that is declared for it, by its name alone. A new line is an event of its own, which no changed property explains: it
has a class, and is raised at once.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Self
from uuid import UUID, uuid4

from cosmos_outbox import Aggregate, AggregateState, Timestamp, WireModel, input_rule
from examples.orders.errors import OrderFull, OrderShipped
from examples.orders.events import (
    ORDER_PLACED,
    ORDER_SHIPPED,
    Line,
    OrderLineAddedEvent,
    name_of,
)

MOST_LINES = 50
CUSTOMER_LENGTH = 100


def _some_lines(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    if not 1 <= len(lines) <= MOST_LINES:
        raise ValueError(f"must be 1 to {MOST_LINES} lines")
    return lines


class NewOrder(WireModel):
    """The part of an order that the customer decides. Its rules are for input: a stored order is read in any case."""

    customer: Annotated[str, name_of(CUSTOMER_LENGTH)]
    lines: Annotated[tuple[Line, ...], input_rule(_some_lines)]


class OrderState(NewOrder, AggregateState):
    """An order as it is stored."""

    id: UUID
    created_at: Timestamp
    shipped_at: Timestamp | None = None


class Order(Aggregate[OrderState]):
    """A customer's order, until it is shipped."""

    aggregate_type: ClassVar[str] = "order"
    state_type: ClassVar[type[AggregateState]] = OrderState
    created_event, created_payload = ORDER_PLACED, NewOrder
    changed_events: ClassVar[Mapping[str, str]] = {"shipped_at": ORDER_SHIPPED}

    @classmethod
    def place(cls, order: NewOrder, *, at: datetime, id: UUID | None = None) -> Self:  # noqa: A002 - its id
        """A new order, not stored yet. ``at``: when the order is placed (UTC)."""
        return cls(OrderState(**dict(order), id=id or uuid4(), created_at=at), is_new=True)

    @property
    def aggregate_id(self) -> str:
        """The order's id as text; the order and its events are partitioned by it."""
        return str(self._state.id)

    def add_line(self, line: Line, *, at: datetime) -> None:
        """Add a line. Raises OrderShipped or OrderFull."""
        self._must_be_open()
        if len(self._state.lines) >= MOST_LINES:
            raise OrderFull(f"an order has at most {MOST_LINES} lines: place another order")
        self._raise(
            lambda sequence: OrderLineAddedEvent(
                order_id=self._state.id, sequence=sequence, created_at=at, line=line
            ),
            lines=(*self._state.lines, line),
        )

    def ship(self, *, at: datetime) -> None:
        """Ship the order. Raises OrderShipped when the order was shipped before."""
        self._must_be_open()
        self._set("shipped_at", at, at)

    def _must_be_open(self) -> None:
        if self._state.shipped_at is not None:
            raise OrderShipped(
                f"order {self.aggregate_id} was shipped and takes no change: place another order"
            )
