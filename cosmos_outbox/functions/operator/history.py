"""HTTP for operators: what became of the events of one aggregate. No value of a property leaves the store here."""

import re
from collections.abc import Sequence

from cosmos_outbox.http import request
from cosmos_outbox.http.errors import FieldError, InvalidRequest
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.past_events import Past
from cosmos_outbox.operations.views import history as view
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.outbox.errors import AggregateNotFound

_LONGEST_ID = 1023
"""In bytes: the longest that the id of an item may be, and so that of an aggregate."""

_SEQUENCE = re.compile(r"[1-9][0-9]{0,14}")


def aggregate(req: Request, names: Sequence[PathNames]) -> AggregateKey:
    """The aggregate in the path. Raises AggregateNotFound when the service has no aggregates of that name."""
    path, aggregate_id = req.route["path"], req.route["id"]
    for each in names:
        if each.path == path:
            if len(aggregate_id.encode()) > _LONGEST_ID:
                raise AggregateNotFound("nothing can be stored under an id that is so long")
            return AggregateKey(each.aggregate_type, aggregate_id)
    paths = ", ".join(f"history/{each.path}/{{id}}" for each in names)
    raise AggregateNotFound(f"this service has no {path}: call {paths}")


def page_request(req: Request) -> tuple[int, int | None]:
    """How many events, and below which sequence (None: the newest). Raises InvalidRequest."""
    given = request.query(req, "pageSize", "before")
    size, before = request.page_size(given), given.get("before")
    if before is not None and not _SEQUENCE.fullmatch(before):
        raise InvalidRequest(FieldError("before", "must be the number that the page before gave"))
    return size, None if before is None else int(before)


def told(past: Past, names: Sequence[PathNames]) -> Answer:
    """200 with a page of an aggregate's events, the newest first."""
    return json_response(200, view.told(past, names))
