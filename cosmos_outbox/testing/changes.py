"""Returns the events and the stored form of an aggregate's changes, without a store."""

from collections.abc import Sequence
from typing import Any, TypeVar

from cosmos_outbox.outbox.aggregate import STORED, Aggregate
from cosmos_outbox.outbox.event import DomainEvent

A = TypeVar("A", bound=Aggregate[Any])


def raised(aggregate: Aggregate[Any]) -> Sequence[DomainEvent]:
    """Returns the events of an aggregate's changes since it was created or loaded, in order.

    Example::

        made = Booking.create(title="A table")
        assert [(event.action, event.sequence) for event in raised(made)] == [("BookingCreated", 1)]
    """
    changes = aggregate.changes()
    return [] if changes is None else changes.events


def stored(aggregate: A) -> A:
    """Returns the aggregate as it is read again after its changes were stored.

    Example::

        made = stored(Booking.create(title="A table"))
        assert raised(made) == []
    """
    changes = aggregate.changes()
    state = aggregate.state if changes is None else changes.state
    written = state.model_dump(mode="json", by_alias=True)
    return type(aggregate).load(
        type(aggregate).state_type.model_validate(written, by_alias=True, by_name=False, context=STORED)
    )
