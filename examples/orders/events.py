"""What happens to an order, as subscribers know it. Each event carries what a subscriber needs, and the order's id."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from outbox.event import DomainEvent, WireModel

MOST_PIECES = 1000
SKU_LENGTH = 40


class Line(WireModel):
    """So many pieces of one article."""

    sku: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=SKU_LENGTH)]
    quantity: Annotated[int, Field(ge=1, le=MOST_PIECES, strict=True)]


class OrderEvent(DomainEvent):
    """What every event of an order carries."""

    order_id: UUID


class OrderPlacedEvent(OrderEvent):
    """A customer has ordered; the event carries all that was ordered."""

    action: Literal["OrderPlacedEvent"] = "OrderPlacedEvent"
    customer: str
    lines: tuple[Line, ...]


class OrderLineAddedEvent(OrderEvent):
    """The customer wants something more. Two lines that are added at once are two events."""

    action: Literal["OrderLineAddedEvent"] = "OrderLineAddedEvent"
    line: Line


class OrderShippedEvent(OrderEvent):
    """The order is on its way; it changes no more."""

    action: Literal["OrderShippedEvent"] = "OrderShippedEvent"
    shipped_at: datetime
