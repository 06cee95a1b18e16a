"""HTTP for operators: what became of the events of one aggregate. No value of a property leaves the store here."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import azure.functions as func

from infra.http import operations, request
from infra.http.errors import FieldError, InvalidRequest
from infra.http.responses import json_response
from infra.past_events import Past, PastEvent
from infra.relay_status import Progress
from outbox.aggregate import AggregateKey
from outbox.errors import AggregateNotFound

_LONGEST_ID = 1023
"""In bytes: the longest that the id of an item may be, and so that of an aggregate."""

_SEQUENCE = re.compile(r"[1-9][0-9]{0,14}")


def aggregate(req: func.HttpRequest, names: Sequence[operations.Names]) -> AggregateKey:
    """The aggregate in the path. Raises AggregateNotFound when the service has no aggregates of that name."""
    path, aggregate_id = req.route_params["path"], req.route_params["id"]
    for each in names:
        if each.path == path:
            if len(aggregate_id.encode()) > _LONGEST_ID:
                raise AggregateNotFound("nothing can be stored under an id that is so long")
            return AggregateKey(each.aggregate_type, aggregate_id)
    paths = ", ".join(f"history/{each.path}/{{id}}" for each in names)
    raise AggregateNotFound(f"this service has no {path}: call {paths}")


def page_request(req: func.HttpRequest) -> tuple[int, int | None]:
    """How many events, and below which sequence (None: the newest). Raises InvalidRequest."""
    given = request.query(req, "pageSize", "before")
    size, before = request.page_size(given), given.get("before")
    if before is not None and not _SEQUENCE.fullmatch(before):
        raise InvalidRequest(FieldError("before", "must be the number that the page before gave"))
    return size, None if before is None else int(before)


def told(past: Past, names: Sequence[operations.Names]) -> func.HttpResponse:
    """200 with a page of an aggregate's events, the newest first."""
    owners = {each.owner: past.aggregate.id for each in names if each.aggregate_type == past.aggregate.type}
    return json_response(
        200,
        {
            **owners,
            "aggregateType": past.aggregate.type,
            "lastSequence": past.last_sequence,
            "deleted": past.deleted,
            "relay": _progress(past.progress),
            "events": [_event(event) for event in past.events],
            "expired": [{"first": each.first, "last": each.last} for each in past.expired],
            "before": past.before,
        },
    )


def _progress(progress: Progress) -> Mapping[str, Any]:
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
        "correlationId": event.correlation_id,
        "traceId": event.trace_id,
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
