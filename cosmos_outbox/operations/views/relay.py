"""How the relay is: each lease, what waits, and what is parked."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus
from cosmos_outbox.operations.views.names import PathNames


def relay_status(status: RelayStatus, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """Every lease, the missing ones, whether a change is late, and whether events may expire before they are sent."""
    return {
        "late": status.late,
        "eventsAtRisk": status.events_at_risk,
        "parkedEvents": status.parked_events,
        **{each.count: status.parked[each.aggregate_type] for each in names},
        "missingLeases": status.missing,
        "leases": [_lease(lease) for lease in status.leases],
    }


def _lease(lease: LeaseStatus) -> Mapping[str, Any]:
    return {
        "lease": lease.lease,
        "owner": lease.owner,
        "lag": lease.lag,
        "oldestWaitingSeconds": lease.oldest_waiting_seconds,
        "ttlUsed": round(lease.ttl_used, 4),
        "position": lease.position,
        "newest": lease.newest,
    }
