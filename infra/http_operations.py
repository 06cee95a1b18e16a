"""HTTP for operators: what is parked, and how the relay is doing. Only a single parked event shows personal data."""

import re
from typing import Annotated, Any

import azure.functions as func
from pydantic import StringConstraints

from application.parking import Replayed
from application.ports import ParkedEvent, ParkedPage
from application.validation import validated
from domain.errors import NotParked
from domain.values import WireModel
from infra.http import json_object, json_response
from infra.relay_status import RelayStatus

_PARKING_ID = re.compile(r"[0-9a-f]{32}")


DiscardReason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class Discard(WireModel):
    """Why an event is given up."""

    reason: DiscardReason


def parking_id(request: func.HttpRequest) -> str:
    """The parked event in the path. Raises NotParked when it can be none."""
    text = str(request.route_params.get("id", ""))
    if not _PARKING_ID.fullmatch(text):
        raise NotParked("no such event is parked: its id is the one in the list of parked events")
    return text


def discard_reason(request: func.HttpRequest) -> str:
    """Why an event is given up. Raises InvalidRequest."""
    discard = validated(Discard, json_object(request, {"application/json"}))
    return str(discard.reason)


def parked_listed(page: ParkedPage) -> func.HttpResponse:
    """200 with some parked events, without their documents, and the token of the next page."""
    items = [_summary(parked) for parked in page.items]
    return json_response(200, {"items": items, "continuationToken": page.continuation_token}, {})


def parked_shown(parked: ParkedEvent) -> func.HttpResponse:
    """200 with a parked event and the document as it was read from the feed."""
    return json_response(200, _summary(parked) | {"document": dict(parked.document)}, {})


def replayed(result: Replayed) -> func.HttpResponse:
    """200 with how many events were sent and whether that was all: if not, ask again."""
    return json_response(200, {"replayed": result.replayed, "remaining": not result.done}, {})


def relay_status(status: RelayStatus) -> func.HttpResponse:
    """200 with every lease, the age of what waits there, and whether that is too old."""
    leases = [
        {
            "lease": lease.lease,
            "owner": lease.owner,
            "lag": lease.lag,
            "oldestWaitingSeconds": lease.oldest_waiting_seconds,
            "ttlUsed": round(lease.ttl_used, 4),
        }
        for lease in status.leases
    ]
    document = {"late": status.late, "parkedContacts": status.parked_contacts, "leases": leases}
    return json_response(200, document, {})


def discarded() -> func.HttpResponse:
    """204."""
    return func.HttpResponse(status_code=204)


def _summary(parked: ParkedEvent) -> dict[str, Any]:
    return {
        "id": parked.id,
        "eventId": parked.event_id,
        "contactId": parked.contact_id,
        "action": parked.action,
        "sequence": parked.sequence,
        "reason": parked.reason,
        "parkedAt": parked.parked_at.isoformat(),
    }
