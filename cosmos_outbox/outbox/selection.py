"""Defines the filter and the order of a list of aggregates, equal for every store.

By creation, a change between two pages neither repeats nor omits an aggregate. By the last change, an aggregate that
changes between two pages moves to the newest end: read from the oldest it is listed again, read from the newest it is
omitted unless it was listed before.
"""

from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Aggregate

CREATED_AT = "created_at"


class Order(StrEnum):
    """The sort key of a list, with ``-`` the newest first; equal ones are sorted by id."""

    CREATED = "created"
    """By ``created_at`` of the state; two of the same second may be swapped, always in the same way."""
    NEWEST_CREATED = "-created"
    CHANGED = "changed"
    """By the time of the store's last write, in seconds."""
    NEWEST_CHANGED = "-changed"

    @property
    def is_descending(self) -> bool:
        """Whether the newest comes first."""
        return self.startswith("-")

    @property
    def by_change(self) -> bool:
        """Whether it sorts by the last change, not by the creation."""
        return self in (Order.CHANGED, Order.NEWEST_CHANGED)


def orders(kind: type[Aggregate[Any]]) -> list[Order]:
    """Returns the orders that a list of these aggregates supports, the default first."""
    has_created = CREATED_AT in kind.state_type.model_fields
    return [order for order in Order if has_created or order.by_change]


@dataclass(frozen=True)
class Selection:
    """The filter and the order of a list of aggregates that are not deleted."""

    order: Order | None = None
    """None: the first of :func:`orders`."""
    equal: Mapping[str, Any] = field(default_factory=dict)
    """The required values, as JSON, by the name of a property in ``found_by`` of the aggregate."""
    ids: Collection[str] | None = None
    """Only these; None: any."""
    changed_since: datetime | None = None
    """Only those that the store has written since, including this second."""


ALL = Selection()
