"""HTTP for operators: how the service is, and its parked events. Only one parked event's answer holds personal data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import azure.functions as func
from pydantic import StringConstraints

from infra.http.errors import FieldError, InvalidRequest
from infra.http.request import PAGE, json_object, query
from infra.http.responses import json_response
from infra.http.validation import validated
from outbox.aggregate import AggregateKey
from outbox.errors import NotParked
from outbox.event import WireModel

if TYPE_CHECKING:
    from infra.dependencies import Health
    from infra.instance import Instance
    from infra.relay_status import LeaseStatus, RelayStatus
    from outbox.parking_lot import ParkedEvent, ParkedPage
    from outbox.replay import Replayed

_PARKING_ID = re.compile(r"[0-9a-f]{32}")

DiscardReason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


@dataclass(frozen=True)
class Names:
    """The names of one type of aggregate in the operators' paths and JSON."""

    aggregate_type: str
    path: str
    """The part of the path before an aggregate's id, such as ``accounts``."""
    owner: str
    """The field with an aggregate's id, such as ``accountId``."""
    count: str
    """The field with the number of parked aggregates of the type, such as ``parkedAccounts``."""


class Discard(WireModel):
    """The body of a call that cannot be taken back: the reason."""

    reason: DiscardReason


def parking_id(request: func.HttpRequest) -> str:
    """The id of the parked event in the path. Raises NotParked when no event can have the id."""
    text = str(request.route_params.get("id", ""))
    if not _PARKING_ID.fullmatch(text):
        raise NotParked("no such event is parked: take an id from the list of parked events")
    return text


def parked_aggregate(request: func.HttpRequest, names: Sequence[Names]) -> AggregateKey:
    """The aggregate in the path. Raises NotParked when the service has no aggregates of that name."""
    path, aggregate_id = request.route_params["path"], request.route_params["id"]
    for each in names:
        if each.path == path:
            return AggregateKey(each.aggregate_type, aggregate_id)
    paths = ", ".join(f"parked/{each.path}/{{id}}/replay" for each in names)
    raise NotParked(f"this service has no {path}: call {paths}")


def owners(aggregate: tuple[str, str] | None, names: Sequence[Names]) -> Mapping[str, str | None]:
    """The aggregate's id, under the name of its type; the fields of the other types are null."""
    kind, aggregate_id = aggregate or (None, None)
    return {each.owner: aggregate_id if kind == each.aggregate_type else None for each in names}


def discard_reason(request: func.HttpRequest) -> str:
    """The reason in the body. Raises InvalidRequest."""
    discard = validated(Discard, json_object(request, "application/json"))
    return str(discard.reason)


def reason_if_given(request: func.HttpRequest) -> str | None:
    """The reason in the body; None: the request has no body. Raises InvalidRequest."""
    if not request.get_body() and "transfer-encoding" not in request.headers:
        return None
    return discard_reason(request)


def wants_discarded(request: func.HttpRequest) -> bool:
    """Whether the query asks for the discarded events: ``state=discarded``. Raises InvalidRequest."""
    state = query(request, *PAGE, "state").get("state", "parked")
    if state not in ("parked", "discarded"):
        raise InvalidRequest(FieldError("state", "must be parked or discarded"))
    return state == "discarded"


def parked_listed(page: "ParkedPage", names: Sequence[Names], max_age_seconds: int) -> func.HttpResponse:
    """200 with a page of parked events, without their documents, and the token of the next page."""
    return json_response(
        200,
        {
            "items": [_summary(parked, names) for parked in page.items],
            "continuationToken": page.continuation_token,
            "discardedAfterSeconds": max_age_seconds,
        },
    )


def parked_shown(parked: "ParkedEvent", names: Sequence[Names]) -> func.HttpResponse:
    """200 with a parked event and the document as it was read from the feed."""
    return json_response(200, {**_summary(parked, names), "document": dict(parked.document)})


def replayed(result: "Replayed") -> func.HttpResponse:
    """200 with how many events were sent, and whether events remain: then replay again."""
    return json_response(200, {"replayed": result.replayed, "remaining": not result.done})


def relay_status(status: "RelayStatus", names: Sequence[Names]) -> func.HttpResponse:
    """200 with every lease, the age of its oldest waiting change, the missing ones, and whether the relay is late."""
    leases = [_lease(lease) for lease in status.leases]
    parked = {each.count: status.parked[each.aggregate_type] for each in names}
    return json_response(
        200, {"late": status.late, **parked, "missingLeases": status.missing, "leases": leases}
    )


def dependencies(found: "Sequence[Health]") -> func.HttpResponse:
    """200 with the health of each service that this one needs; ``detail`` says why one cannot be used."""
    return json_response(200, {"items": [asdict(each) for each in found]})


def instance(process: "Instance", names: Sequence[Names], lists: Sequence[str]) -> func.HttpResponse:
    """200 with what one process has forwarded, its settings without secrets, and what the service calls things."""
    return json_response(
        200,
        {
            "id": process.id,
            "startedAt": process.started_at.isoformat(),
            "forwarded": process.forwarded.total,
            "forwardedPerSecond": round(process.forwarded.per_second, 1),
            "aggregates": [
                {"type": each.aggregate_type, "path": each.path, "owner": each.owner, "count": each.count}
                for each in names
            ],
            "lists": list(lists),
            "settings": dict(process.settings),
        },
    )


def _lease(lease: "LeaseStatus") -> Mapping[str, Any]:
    return {
        "lease": lease.lease,
        "owner": lease.owner,
        "lag": lease.lag,
        "oldestWaitingSeconds": lease.oldest_waiting_seconds,
        "ttlUsed": round(lease.ttl_used, 4),
        "position": lease.position,
        "newest": lease.newest,
    }


def _summary(parked: "ParkedEvent", names: Sequence[Names]) -> Mapping[str, Any]:
    aggregate = parked.aggregate
    return {
        "id": parked.id,
        "eventId": parked.event_id,
        **owners(aggregate, names),
        "aggregateType": aggregate.type if aggregate else None,
        "action": parked.action,
        "sequence": parked.sequence,
        "reason": parked.reason,
        "parkedAt": parked.parked_at.isoformat(),
        "state": parked.state.value,
        "notice": parked.is_notice,
        "attempts": parked.attempts,
        "lastAttemptAt": parked.attempted_at.isoformat() if parked.attempted_at else None,
        **_discarding(parked),
    }


def _discarding(parked: "ParkedEvent") -> Mapping[str, Any]:
    if parked.discarding is None:
        return {}
    return {"discardedAt": parked.discarding.at.isoformat(), "discardReason": parked.discarding.reason}
