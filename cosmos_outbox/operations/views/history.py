"""What became of the events of one aggregate, for each destination. No value of a property leaves the store here."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cosmos_outbox.operations.past_events import Past, PastEvent
from cosmos_outbox.operations.relay_status import KeyProgress
from cosmos_outbox.operations.views.names import PathNames


def told(past: Past, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A page of an aggregate's events, the newest first."""
    owners = {each.owner: past.aggregate.id for each in names if each.aggregate_type == past.aggregate.type}
    return {
        **owners,
        "aggregateType": past.aggregate.type,
        "lastSequence": past.last_sequence,
        "deleted": past.deleted,
        "relay": _progress(past.progress),
        "destinations": [{"name": name, **_progress(each)} for name, each in past.beside.items()],
        "events": [_event(event) for event in past.events],
        "expired": [{"first": each.first, "last": each.last} for each in past.expired],
        "before": past.before,
    }


def _progress(progress: KeyProgress) -> Mapping[str, Any]:
    return {
        "asOf": progress.as_of.isoformat(),
        "lease": progress.lease,
        "position": progress.position,
        "waitingSince": _text(progress.waiting_since),
    }


def _event(event: PastEvent) -> Mapping[str, Any]:
    return {
        "eventId": event.event_id,
        "sequence": event.sequence,
        "action": event.action,
        "changed": list(event.changed),
        "createdAt": _text(event.created_at),
        "storedAt": _text(event.stored_at),
        "expiresAt": _text(event.expires_at),
        "state": event.state.value,
        "parkingId": event.parking_id,
        "destinations": [
            {"name": name, "state": each.state.value, "parkingId": each.parking_id}
            for name, each in event.beside.items()
        ],
        "correlationId": event.correlation_id,
        "traceId": event.trace_id,
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
