"""The relay, the subscribers and an aggregate's events, as JSON for operators, without personal data."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.maintenance.event_list import EventPage
    from cosmos_outbox.inbox.healing import Counts, Healing
    from cosmos_outbox.inbox.retrier import Retrier
    from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus

View = Mapping[str, Any]


def event_list(page: "EventPage") -> View:
    """A page of one aggregate's stored and parked events, the newest first."""
    return {
        "aggregateType": page.aggregate.type,
        "aggregateId": page.aggregate.id,
        "items": [
            {
                "eventId": event.event_id,
                "sequence": event.sequence,
                "action": event.action,
                "createdAt": event.created_at,
                "correlationId": event.correlation_id,
                "state": event.state.value,
                "stuckId": event.parking_id,
            }
            for event in page.items
        ],
        "before": page.before,
    }


def relay_status(status: "RelayStatus") -> View:
    """Every lease, the missing ones, whether a change is late, and whether events may expire before they are sent."""
    return {
        "late": status.late,
        "eventsAtRisk": status.events_at_risk,
        "parkedEvents": status.parked_events,
        "parkedAggregates": dict(status.parked),
        "averageWaitingSeconds": _rounded(status.average_waiting_seconds),
        "missingLeases": status.missing,
        "failures": [
            {"reason": each.reason.value, "at": each.at.isoformat(), "detail": each.detail}
            for each in status.failures
        ],
        "leases": [_lease(lease) for lease in status.leases],
    }


def _lease(lease: "LeaseStatus") -> View:
    return {
        "lease": lease.lease,
        "owner": lease.owner,
        "lag": lease.lag,
        "oldestWaitingSeconds": lease.oldest_waiting_seconds,
        "averageWaitingSeconds": _rounded(lease.average_waiting_seconds),
        "state": lease.held.value,
        "ttlUsed": round(lease.ttl_used, 4),
        "position": lease.position,
        "newest": lease.newest,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


async def subscriber(name: str, retrier: "Retrier", healing: "Healing[Any] | None") -> View:
    """The open records of one subscriber by state, what its last walk found, and the walk that is under way.

    Raises StoreUnavailable.
    """
    records = await retrier.counts()
    walk = await healing.progress() if healing else None
    last, under_way = walk and walk.last_counts, walk if walk and walk.side else None
    return {
        "name": name,
        "setAside": {state.value: count for state, count in records.items()},
        "lastWalk": last and walk and _found(last, "endedAt", walk.last_ended_at),
        "walk": under_way and _found(under_way.counts, "beganAt", under_way.began_at),
    }


def _found(counts: "Counts", name: str, at: datetime | None) -> View:
    found = {to_camel(field): count for field, count in asdict(counts).items()}
    return {name: at.isoformat() if at else None, **found}
