"""HTTP for operators: how the service is, and its parked events. Only one parked event's answer holds personal data."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from pydantic import StringConstraints

from cosmos_outbox.http.errors import FieldError, InvalidRequest
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.request import PAGE, json_object, page_size, query
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.http.validation import validated
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.views import events, parked, relay
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.outbox.errors import AggregateNotFound, NotParked
from cosmos_outbox.outbox.event import WireModel

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.upkeep.event_list import EventPage
    from cosmos_outbox.operations.dependencies import DependencyHealth
    from cosmos_outbox.operations.instance import Instance
    from cosmos_outbox.operations.lease_status import RelayStatus
    from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkedPage
    from cosmos_outbox.outbox.replay import Replayed

_LONGEST_ID = 1023
"""In bytes: the longest that the id of an item may be, and so that of an aggregate."""
_SEQUENCE = re.compile(r"[1-9][0-9]{0,14}")
_PARKING_ID = re.compile(r"[0-9a-f]{32}")

DiscardReason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class Discard(WireModel):
    """The body of a call that cannot be taken back: the reason."""

    reason: DiscardReason


def named_aggregate(request: Request, names: Sequence[PathNames]) -> AggregateKey:
    """The aggregate in the path. Raises AggregateNotFound when the service has no aggregates of that name."""
    path, aggregate_id = request.route["path"], request.route["id"]
    for each in names:
        if each.path == path:
            if len(aggregate_id.encode()) > _LONGEST_ID:
                raise AggregateNotFound("nothing can be stored under an id that is so long")
            return AggregateKey(each.aggregate_type, aggregate_id)
    paths = ", ".join(f"events/{each.path}/{{id}}" for each in names)
    raise AggregateNotFound(f"this service has no {path}: call {paths}")


def events_request(request: Request) -> tuple[int, int | None]:
    """How many events, and below which sequence (None: the newest). Raises InvalidRequest."""
    given = query(request, "pageSize", "before")
    size, before = page_size(given), given.get("before")
    if before is not None and not _SEQUENCE.fullmatch(before):
        raise InvalidRequest(FieldError("before", "must be the number that the page before gave"))
    return size, None if before is None else int(before)


def events_listed(page: "EventPage", names: Sequence[PathNames]) -> Answer:
    """200 with a page of an aggregate's events, the newest first."""
    return json_response(200, events.listed(page, names))


def parking_id(request: Request) -> str:
    """The id of the parked event in the path. Raises NotParked when no event can have the id."""
    text = str(request.route.get("id", ""))
    if not _PARKING_ID.fullmatch(text):
        raise NotParked("no such event is parked: take an id from the list of parked events")
    return text


def parked_aggregate(request: Request, names: Sequence[PathNames]) -> AggregateKey:
    """The aggregate in the path. Raises NotParked: there are none of that name."""
    path, aggregate_id = request.route["path"], request.route["id"]
    for each in names:
        if each.path == path:
            return AggregateKey(each.aggregate_type, aggregate_id)
    paths = ", ".join(f"parked/{each.path}/{{id}}/replay" for each in names)
    raise NotParked(f"this service has no {path}: call {paths}")


def discard_reason(request: Request) -> str:
    """The reason in the body. Raises InvalidRequest."""
    discard = validated(Discard, json_object(request, "application/json"))
    return str(discard.reason)


def wants_discarded(request: Request) -> bool:
    """Whether the query asks for the discarded events: ``state=discarded``. Raises InvalidRequest."""
    state = query(request, *PAGE, "state").get("state", "parked")
    if state not in ("parked", "discarded"):
        raise InvalidRequest(FieldError("state", "must be parked or discarded"))
    return state == "discarded"


def parked_listed(page: "ParkedPage", names: Sequence[PathNames], max_age_seconds: int) -> Answer:
    """200 with a page of parked events, without their documents, and the token of the next page."""
    return json_response(200, parked.listed(page, names, max_age_seconds))


def parked_shown(event: "ParkedEvent", names: Sequence[PathNames]) -> Answer:
    """200 with a parked event and the document as it was read from the feed."""
    return json_response(200, parked.shown(event, names))


def replayed(result: "Replayed") -> Answer:
    """200 with how many events were sent, and whether events remain: then replay again."""
    return json_response(200, parked.replayed(result))


def relay_status(status: "RelayStatus", names: Sequence[PathNames]) -> Answer:
    """200 with every lease, the missing ones, whether a change is late, and whether events may expire."""
    return json_response(200, relay.relay_status(status, names))


def dependencies(found: "Sequence[DependencyHealth]") -> Answer:
    """200 with the health of each service that this one needs; ``detail`` says why one cannot be used."""
    return json_response(200, {"items": [asdict(each) for each in found]})


def instance(process: "Instance", names: Sequence[PathNames], lists: Sequence[str]) -> Answer:
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
