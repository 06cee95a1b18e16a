"""Which aggregates a list has, and in which order: the same for every store.

By creation nothing is listed twice or left out because it changes between two pages. By the last change, an aggregate
that changes meanwhile moves to the end that is newest: read from the oldest it comes again, read from the newest it is
left out unless it was listed before.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from cosmos_outbox.outbox.aggregate import Aggregate

CREATED_AT = "created_at"


class Order(StrEnum):
    """By what a list is sorted, with ``-`` the newest first; equal ones by their ids."""

    CREATED = "created"
    """By ``created_at`` of the state, which says when; two of one second may be swapped, always in the same way."""
    NEWEST_CREATED = "-created"
    CHANGED = "changed"
    """By when the store wrote it last, in seconds."""
    NEWEST_CHANGED = "-changed"

    @property
    def is_descending(self) -> bool:
        """Whether the newest comes first."""
        return self.startswith("-")

    @property
    def by_change(self) -> bool:
        """Whether the last change counts, and not the creation."""
        return self in (Order.CHANGED, Order.NEWEST_CHANGED)


def orders(kind: type[Aggregate[Any]]) -> list[Order]:
    """The orders that a list of these aggregates can have, first the one that it has unless another is asked for."""
    has_created = CREATED_AT in kind.state_type.model_fields
    return [order for order in Order if has_created or order.by_change]


@dataclass(frozen=True)
class Selection:
    """Which aggregates of one type, of those that are not deleted."""

    order: Order | None = None
    """None: the first of :func:`orders`."""
    equal: Mapping[str, Any] = field(default_factory=dict)
    """By the name of a property in ``found_by`` of the aggregate, the value that it has, as JSON."""
    ids: Collection[str] | None = None
    """Only these; None: any."""
    changed_since: datetime | None = None
    """Only those that the store has written since, this second included."""


ALL = Selection()
