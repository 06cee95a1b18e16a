"""How a subscriber is, and what it has set aside. Only one record's view holds what may be personal."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic.alias_generators import to_camel

from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState
from cosmos_outbox.inbox.walk import Counts, WalkProgress
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.views.names import PathNames, owners


def listed(page: RecordPage, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A page of records, without their messages, and the token of the next page."""
    items = [_summary(record, names) for record in page.items]
    return {"items": items, "continuationToken": page.continuation_token}


def subscriber_status(records: Mapping[RecordState, int], walk: WalkProgress | None) -> Mapping[str, Any]:
    """The number of open records by state, and what the last walk found, and the one that is under way."""
    last, under_way = walk and walk.last_counts, walk if walk and walk.side else None
    return {
        "setAside": {state.value: count for state, count in records.items()},
        "lastWalk": last and walk and _found(last, "endedAt", walk.last_ended_at),
        "walk": under_way and _found(under_way.counts, "beganAt", under_way.began_at),
    }


def _found(counts: Counts, name: str, at: datetime | None) -> Mapping[str, Any]:
    found = {to_camel(field): count for field, count in asdict(counts).items()}
    return {name: at.isoformat() if at else None, **found}


def shown(record: Record, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A record and its message; null where the message was too large to keep."""
    delivery = record.delivery
    message = delivery and {
        "body": delivery.body.decode(errors="replace"),
        "properties": dict(delivery.properties),
    }
    return {**_summary(record, names), "message": message}


def _summary(record: Record, names: Sequence[PathNames]) -> Mapping[str, Any]:
    aggregate = record.aggregate
    return {
        "id": record.id,
        "state": record.state.value,
        "reason": record.reason,
        "setAsideAt": record.set_aside_at.isoformat(),
        "ageSeconds": max(0, int((utc_now() - record.set_aside_at).total_seconds())),
        "attempts": record.attempts,
        "eventId": record.event_id,
        **owners(aggregate, names),
        "aggregateType": aggregate.type if aggregate else None,
        "action": record.action,
        "sequence": record.sequence,
    }
