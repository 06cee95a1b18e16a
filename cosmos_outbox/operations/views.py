"""What an operator is shown, as JSON: the calls over HTTP and the command show the same.

Only the view of one parked event, or of one record, holds what may be personal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_camel

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Aggregate

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.upkeep.event_list import EventPage
    from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState
    from cosmos_outbox.inbox.walk import Counts, WalkProgress
    from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus
    from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkedPage
    from cosmos_outbox.outbox.replay import Replayed

View = Mapping[str, Any]


@dataclass(frozen=True)
class PathNames:
    """The names of one type of aggregate in the operators' paths, JSON and commands."""

    aggregate_type: str
    path: str
    """The part of the path before an aggregate's id, such as ``accounts``."""
    owner: str
    """The field with an aggregate's id, such as ``accountId``."""
    count: str
    """The field with the number of parked aggregates of the type, such as ``parkedAccounts``."""


def names_of(kind: type[Aggregate[Any]]) -> PathNames:
    """The names that follow from an aggregate's type."""
    return names_of_type(kind.aggregate_type, kind.plural)


def names_of_type(aggregate_type: str, plural: str = "") -> PathNames:
    """The same of a type that has no class here; without a plural it is the type with an s."""
    name = to_camel(aggregate_type.replace("-", "_"))
    plural = plural or f"{name}s"
    return PathNames(aggregate_type, plural, f"{name}Id", f"parked{plural[0].upper()}{plural[1:]}")


def event_list(page: "EventPage", names: Sequence[PathNames]) -> View:
    """A page of one aggregate's stored and parked events, the newest first."""
    return {
        **{each.owner: page.aggregate.id for each in names if each.aggregate_type == page.aggregate.type},
        "aggregateType": page.aggregate.type,
        "items": [
            {
                "eventId": event.event_id,
                "sequence": event.sequence,
                "action": event.action,
                "createdAt": event.created_at,
                "correlationId": event.correlation_id,
                "state": event.state.value,
                "parkingId": event.parking_id,
            }
            for event in page.items
        ],
        "before": page.before,
    }


def parked_list(page: "ParkedPage", names: Sequence[PathNames], max_age_seconds: int) -> View:
    """A page of parked events, without their documents, and the token of the next page."""
    return {
        "items": [_parked(each, names) for each in page.items],
        "continuationToken": page.continuation_token,
        "discardedAfterSeconds": max_age_seconds,
    }


def parked_event(parked: "ParkedEvent", names: Sequence[PathNames]) -> View:
    """A parked event and the document as it was read from the feed."""
    return {**_parked(parked, names), "document": dict(parked.document)}


def _parked(parked: "ParkedEvent", names: Sequence[PathNames]) -> View:
    given_up = parked.discarding
    return {
        "id": parked.id,
        **_event(parked, names),
        "reason": parked.reason,
        "parkedAt": parked.parked_at.isoformat(),
        "state": parked.state.value,
        "notice": parked.is_notice,
        "attempts": parked.attempts,
        "lastAttemptAt": parked.attempted_at.isoformat() if parked.attempted_at else None,
        **({"discardedAt": given_up.at.isoformat(), "discardReason": given_up.reason} if given_up else {}),
    }


def _event(of: "ParkedEvent | Record", names: Sequence[PathNames]) -> View:
    """Which event it is; its aggregate's id stands under the name of its type, the fields of other types are null."""
    kind, aggregate_id = of.aggregate or (None, None)
    return {
        "eventId": of.event_id,
        **{each.owner: aggregate_id if kind == each.aggregate_type else None for each in names},
        "aggregateType": kind,
        "action": of.action,
        "sequence": of.sequence,
    }


def replayed(result: "Replayed") -> View:
    """How many events were sent, and whether events remain: then replay again."""
    return {"replayed": result.replayed, "remaining": not result.done}


def relay_status(status: "RelayStatus", names: Sequence[PathNames]) -> View:
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


def set_aside_list(page: "RecordPage", names: Sequence[PathNames]) -> View:
    """A page of records, without their messages, and the token of the next page."""
    items = [_record(each, names) for each in page.items]
    return {"items": items, "continuationToken": page.continuation_token}


def set_aside_record(record: "Record", names: Sequence[PathNames]) -> View:
    """A record and its message; null where the message was too large to keep."""
    delivery = record.delivery
    message = delivery and {
        "body": delivery.body.decode(errors="replace"), "properties": dict(delivery.properties)
    }  # fmt: skip
    return {**_record(record, names), "message": message}


def _record(record: "Record", names: Sequence[PathNames]) -> View:
    return {
        "id": record.id,
        "state": record.state.value,
        "reason": record.reason,
        "setAsideAt": record.set_aside_at.isoformat(),
        "ageSeconds": max(0, int((utc_now() - record.set_aside_at).total_seconds())),
        "attempts": record.attempts,
        **_event(record, names),
    }


def subscriber_status(records: "Mapping[RecordState, int]", walk: "WalkProgress | None") -> View:
    """The number of open records by state, and what the last walk found, and the one that is under way."""
    last, under_way = walk and walk.last_counts, walk if walk and walk.side else None
    return {
        "setAside": {state.value: count for state, count in records.items()},
        "lastWalk": last and walk and _found(last, "endedAt", walk.last_ended_at),
        "walk": under_way and _found(under_way.counts, "beganAt", under_way.began_at),
    }


def _found(counts: "Counts", name: str, at: datetime | None) -> View:
    found = {to_camel(field): count for field, count in asdict(counts).items()}
    return {name: at.isoformat() if at else None, **found}
