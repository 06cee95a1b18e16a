"""The events of an order: each carries the order's id and all that a subscriber needs."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from outbox.event import DomainEvent, Timestamp, WireModel

MOST_PIECES = 1000
SKU_LENGTH = 40


class Line(WireModel):
    """A number of pieces of one article."""

    sku: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=SKU_LENGTH)]
    quantity: Annotated[int, Field(ge=1, le=MOST_PIECES, strict=True)]


class OrderEvent(DomainEvent):
    """The fields of every event of an order."""

    order_id: UUID


class OrderPlacedEvent(OrderEvent):
    """A customer placed the order; the event carries all of it."""

    action: Literal["OrderPlacedEvent"] = "OrderPlacedEvent"
    customer: str
    lines: tuple[Line, ...]


class OrderLineAddedEvent(OrderEvent):
    """A line was added. Two lines that are added at once are two events."""

    action: Literal["OrderLineAddedEvent"] = "OrderLineAddedEvent"
    line: Line


class OrderShippedEvent(OrderEvent):
    """The order was shipped and changes no more."""

    action: Literal["OrderShippedEvent"] = "OrderShippedEvent"
    shipped_at: Timestamp
