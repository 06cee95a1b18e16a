"""A subscriber with a state: the order board has one entry an order, kept from the order's events alone.

The inbox writes an entry and its ``lastSequence`` together, so an event that comes twice changes nothing, and an entry
that lacks an event is read anew from the order. Like any subscriber, the board reads events and orders with models of
its own, which know only what the board shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from inbox.entry import After
from inbox.event import Event
from infra.cosmos.documents import Item
from infra.cosmos.entries import EntryForm
from infra.cosmos.listing import Condition, EntryListing


class _Read(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


class _Line(_Read):
    quantity: int


class _Order(_Read):
    customer: str
    lines: tuple[_Line, ...]
    shipped_at: str | None = None


class _LineAdded(_Read):
    line: _Line


class Status(StrEnum):
    """How far an order is."""

    PLACED = "placed"
    SHIPPED = "shipped"


class BoardEntry(_Read):
    """An order as the board shows it. ``total``: the number of pieces."""

    customer: str
    status: Status
    total: int


def entry_of(order: Mapping[str, Any]) -> BoardEntry:
    """The entry of an order as the order service stores it. Raises pydantic's ValidationError."""
    read = _Order.model_validate(order)
    status = Status.SHIPPED if read.shipped_at else Status.PLACED
    return BoardEntry(customer=read.customer, status=status, total=sum(line.quantity for line in read.lines))


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


def _write(entry: BoardEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", by_alias=True)


def _search(entry: BoardEntry) -> Mapping[str, str]:
    return {"customer": entry.customer.casefold(), "status": entry.status.value}


FORM = EntryForm(write=_write, read=BoardEntry.model_validate, search=_search)


@dataclass(frozen=True)
class OnBoard:
    """An entry, and the newest event of the order that it shows."""

    id: str
    entry: BoardEntry
    sequence: int


@dataclass(frozen=True)
class Board:
    """The board, for readers."""

    listing: EntryListing

    async def page(
        self, status: Status | None, size: int, continuation_token: str | None
    ) -> tuple[Sequence[OnBoard], str | None]:
        """At most ``size`` orders by customer, and the token of the next page.

        Raises UnknownContinuation, Throttled, Unavailable.
        """
        conditions = [] if status is None else [[Condition("status", status.value)]]
        items, token = await self.listing.page(conditions, "customer", size, continuation_token)
        return [_on_board(item) for item in items], token


def _on_board(item: Item) -> OnBoard:
    return OnBoard(item["id"], BoardEntry.model_validate(item["data"]), item["lastSequence"])
