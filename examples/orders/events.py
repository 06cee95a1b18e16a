"""The events of an order: each carries the order's id and all that a subscriber needs."""

import unicodedata
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from cosmos_outbox import DomainEvent, Timestamp, WireModel, input_rule

MOST_PIECES = 1000
SKU_LENGTH = 40


def name_of(length: int) -> AfterValidator:
    """The rule of a name: not blank, in one line, and at most so many characters."""

    def check(text: str) -> str:
        if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
            raise ValueError("must not have control characters, line breaks or tabs")
        if not 1 <= len(text.strip()) <= length:
            raise ValueError(f"must have 1 to {length} characters that are not spaces around it")
        return text.strip()

    return input_rule(check)


def _pieces(quantity: int) -> int:
    if not 1 <= quantity <= MOST_PIECES:
        raise ValueError(f"must be 1 to {MOST_PIECES}")
    return quantity


class Line(WireModel):
    """A number of pieces of one article."""

    sku: Annotated[str, name_of(SKU_LENGTH)]
    quantity: Annotated[int, Field(strict=True), input_rule(_pieces)]


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
