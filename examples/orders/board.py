"""A subscriber with a state: the order board has one entry an order, kept from the order's events alone.

The inbox writes an entry and its ``lastSequence`` together, so an event that comes twice changes nothing, and an entry
that lacks an event is read anew from the order. Like any subscriber, the board reads events and orders with models of
its own, which know only what the board shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from cosmos_outbox import After, Condition, EntrySchema, Event, ListedPage, Listing, TolerantReader
from examples.orders.events import ORDER_PLACED


class _Line(TolerantReader):
    quantity: int


class _Order(TolerantReader):
    customer: str
    lines: tuple[_Line, ...]
    shipped_at: str | None = None


class _LineAdded(TolerantReader):
    line: _Line


class Status(StrEnum):
    """How far an order is."""

    PLACED = "placed"
    SHIPPED = "shipped"


class BoardEntry(TolerantReader):
    """An order as the board shows it. ``total``: the number of pieces."""

    customer: str
    status: Status
    total: int


def entry_of(order: Mapping[str, Any]) -> BoardEntry:
    """The entry of an order as the order service stores it. Raises pydantic's ValidationError."""
    read = _Order.model_validate(order)
    status = Status.SHIPPED if read.shipped_at else Status.PLACED
    return BoardEntry(customer=read.customer, status=status, total=sum(line.quantity for line in read.lines))


def first(placed: Event) -> BoardEntry | None:
    """The entry of a new order, whose event carries all of it; None: the order itself has to be read."""
    try:
        return entry_of(placed.data) if placed.action == ORDER_PLACED else None
    except ValidationError:
        return None


def project(entry: BoardEntry, event: Event) -> After[BoardEntry] | None:
    """The entry after an event; None: the board cannot read the event, so the order itself has to be read."""
    try:
        match event.action:
            case "OrderLineAddedEvent":
                added = _LineAdded.model_validate(event.data).line.quantity
                return After(entry.model_copy(update={"total": entry.total + added}))
            case "OrderShippedEvent":
                return After(entry.model_copy(update={"status": Status.SHIPPED}))
    except ValidationError:
        pass
    return None


FORM = EntrySchema(
    version=1,
    model=BoardEntry,
    search={"customer": lambda entry: entry.customer.casefold(), "status": lambda entry: entry.status.value},
    sorted_by=["customer"],
)


@dataclass(frozen=True)
class Board:
    """The board, for readers."""

    listing: Listing[BoardEntry]

    async def page(
        self, status: Status | None, size: int, continuation_token: str | None
    ) -> ListedPage[BoardEntry]:
        """At most ``size`` orders by customer. Raises UnknownContinuation, Throttled, Unavailable."""
        conditions = [] if status is None else [[Condition("status", status.value)]]
        return await self.listing.page(conditions, "customer", size, continuation_token)
