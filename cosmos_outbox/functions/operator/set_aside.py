"""HTTP for operators: how a subscriber is, and what it has set aside. Only one record's answer holds personal data."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import azure.functions as func

from cosmos_outbox.functions.edge.http_functions import HttpFunctions
from cosmos_outbox.functions.operator import operations
from cosmos_outbox.http import methods, request, responses
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.operations.views import set_aside as view
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.outbox.errors import NotParked
from cosmos_outbox.wiring.located import AnyService

if TYPE_CHECKING:
    from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState
    from cosmos_outbox.inbox.walk import WalkProgress
    from cosmos_outbox.wiring.subscription import Subscriber

answering = HttpFunctions(Answering())


def set_aside_functions(
    service: AnyService, of: str, names: Sequence[PathNames], *, path: str = ""
) -> func.Blueprint:
    """The functions for the subscriber ``of``, all with the admin key; the service is wired at the first request.

    ``path`` comes before the routes of a second subscriber of one app, and at the end of its functions' names.
    """
    before, after = f"{path}/" if path else "", f"_{path.replace('-', '_')}" if path else ""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    def subscriber() -> "Subscriber":
        return service().subscriptions[of].subscriber

    @app.function_name(f"get_subscriber{after}")
    @app.route(route=f"{before}subscriber", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_subscriber(req: Request) -> Answer:
        """GET /subscriber: how much is set aside, and what the walk has found and healed."""
        made = service().subscriptions[of]
        walk = await made.healing.progress() if made.healing else None
        return subscriber_status(await made.subscriber.retrier.counts(), walk)

    @app.function_name(f"list_set_aside{after}")
    @app.route(route=f"{before}set-aside", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def list_set_aside(req: Request) -> Answer:
        """GET /set-aside?pageSize=&continuationToken=: the messages that wait or were refused, oldest first."""
        size, token = request.page_request(req)
        return listed(await subscriber().retrier.page(size, token), names)

    @app.function_name(f"get_set_aside{after}")
    @app.route(route=f"{before}set-aside/{{id}}", methods=methods.READING, auth_level=func.AuthLevel.ADMIN)
    @answering
    async def get_set_aside(req: Request) -> Answer:
        """GET /set-aside/{id}: one record, with its message."""
        return shown(await subscriber().retrier.show(record_id(req)), names)

    @app.function_name(f"apply_set_aside{after}")
    @app.route(route=f"{before}set-aside/{{id}}/apply", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def apply_set_aside(req: Request) -> Answer:
        """POST /set-aside/{id}/apply: try one record now, after those of its aggregate that come earlier."""
        await subscriber().retrier.apply(record_id(req))
        return responses.no_content()

    @app.function_name(f"discard_set_aside{after}")
    @app.route(route=f"{before}set-aside/{{id}}/discard", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def discard_set_aside(req: Request) -> Answer:
        """POST /set-aside/{id}/discard {"reason": ...}: give one record up for good."""
        wanted, reason = record_id(req), operations.discard_reason(req)
        await subscriber().retrier.discard(wanted, reason)
        return responses.no_content()

    @app.function_name(f"collect_dead_letters{after}")
    @app.route(route=f"{before}dead-letters/collect", methods=["POST"], auth_level=func.AuthLevel.ADMIN)
    @answering
    async def collect_dead_letters(req: Request) -> Answer:
        """POST /dead-letters/collect: move the subscription's dead letters into records."""
        found = await subscriber().collect()
        return json_response(200, {"collected": found.messages, "emptied": found.emptied})

    return app


def record_id(req: Request) -> str:
    """The id in the path; it looks like that of a parked event. Raises NotSetAside when no record can have it."""
    try:
        return operations.parking_id(req)
    except NotParked:
        raise NotSetAside("no record has this id: take an id from the list of what is set aside") from None


def listed(page: "RecordPage", names: Sequence[PathNames]) -> Answer:
    """200 with a page of records, without their messages, and the token of the next page."""
    return json_response(200, view.listed(page, names))


def subscriber_status(records: "Mapping[RecordState, int]", walk: "WalkProgress | None") -> Answer:
    """200 with the number of open records by state, and what the walk has found."""
    return json_response(200, view.subscriber_status(records, walk))


def shown(record: "Record", names: Sequence[PathNames]) -> Answer:
    """200 with a record and its message; null where the message was too large to keep."""
    return json_response(200, view.shown(record, names))
