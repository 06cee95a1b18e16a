"""How the relay is: each lease, what waits, and what is parked."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.operations.lease_status import LeaseStatus, RelayStatus
from cosmos_outbox.operations.views.names import PathNames


def relay_status(status: RelayStatus, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """Every lease, the missing ones, whether a change is late, and whether events may expire before they are sent."""
    return {
        "late": status.late,
        "eventsAtRisk": status.events_at_risk,
        "parkedEvents": status.parked_events,
        **{each.count: status.parked[each.aggregate_type] for each in names},
        "averageWaitingSeconds": _rounded(status.average_waiting_seconds),
        "missingLeases": status.missing,
        "failures": [
            {"reason": each.reason.value, "at": each.at.isoformat(), "detail": each.detail}
            for each in status.failures
        ],
        "leases": [_lease(lease) for lease in status.leases],
    }


def _lease(lease: LeaseStatus) -> Mapping[str, Any]:
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
