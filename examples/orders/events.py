"""What an order is made of, the names of events, and the event of an order that no changed property explains."""

import unicodedata
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from cosmos_outbox import DomainEvent, WireModel, input_rule

ORDER_PLACED = "OrderPlacedEvent"
"""An order's first event, which carries all of it."""

ORDER_SHIPPED = "OrderShippedEvent"
"""The event on which the customer is notified."""

GIFT_GIVEN = "GiftGivenEvent"
"""A gift's only event, which carries all of it."""

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


class OrderLineAddedEvent(DomainEvent):
    """A line was added. Two lines that are added at once are two events."""

    action: Literal["OrderLineAddedEvent"] = "OrderLineAddedEvent"
    order_id: UUID
    line: Line
