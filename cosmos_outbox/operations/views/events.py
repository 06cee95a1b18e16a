"""The stored and the parked events of one aggregate, as JSON. No value of a property leaves the store here."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cosmos.upkeep.event_list import EventPage, ListedEvent
from cosmos_outbox.operations.views.names import PathNames


def listed(page: EventPage, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A page of an aggregate's events, the newest first."""
    return {
        **{each.owner: page.aggregate.id for each in names if each.aggregate_type == page.aggregate.type},
        "aggregateType": page.aggregate.type,
        "items": [_one(event) for event in page.items],
        "before": page.before,
    }


def _one(event: ListedEvent) -> Mapping[str, Any]:
    return {
        "eventId": event.event_id,
        "sequence": event.sequence,
        "action": event.action,
        "createdAt": event.created_at,
        "correlationId": event.correlation_id,
        "state": event.state.value,
        "parkingId": event.parking_id,
    }
