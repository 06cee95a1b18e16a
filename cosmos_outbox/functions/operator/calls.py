"""The HTTP functions of an operator are the same for every service: a page, health, the relay, what is stuck.

The names of these functions sort before ``unrouted``. All of them need the admin key, but for health and for the page,
which holds no data. Only the answers with one parked event and with one record hold personal data.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import azure.functions as func
from pydantic import StringConstraints

from cosmos_outbox.functions.edge.http_functions import HttpFunctions
from cosmos_outbox.functions.operator import operations_page
from cosmos_outbox.http import request, responses
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import READING, Answer, Handler, Request
from cosmos_outbox.http.problems import FieldError, InvalidRequest
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.http.validation import validated
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations import views
from cosmos_outbox.operations.views import PathNames
from cosmos_outbox.outbox.errors import AggregateNotFound, NotParked, OutboxError
from cosmos_outbox.outbox.event import WireModel
from cosmos_outbox.wiring.located import AnyService
from cosmos_outbox.wiring.per_process import HasOutbox

if TYPE_CHECKING:
    from cosmos_outbox.operations.forwarding import Instance
    from cosmos_outbox.wiring.subscription import Subscriber

_LONGEST_ID = 1023
"""In bytes: the longest that the id of an item may be, and so that of an aggregate."""
_SEQUENCE = re.compile(r"[1-9][0-9]{0,14}")
_PARKING_ID = re.compile(r"[0-9a-f]{32}")

answering = HttpFunctions(Answering())
answering_anybody = HttpFunctions(Answering(told_every_seconds=60))
"""Of the functions that need no key."""


class Discard(WireModel):
    """The body of a call that cannot be taken back: the reason."""

    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


def operator_functions(
    service: Callable[[], HasOutbox], names: Sequence[PathNames], *, lists: Sequence[str] = ()
) -> func.Blueprint:
    """The operator's functions; ``service`` is called at the first request. ``names`` has one entry a type.

    ``lists`` are the paths of the lists of what the service's subscribers have not done, such as ``set-aside``: the
    operations page shows each.
    """

    async def check() -> None:
        await service().outbox.check()

    app = health_functions(check)
    _add_views(app, service, names, lists)
    _add_parked(app, service, names)
    return app


def health_functions(check: Callable[[], Awaitable[None]]) -> func.Blueprint:
    """Whether the store answers."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    @app.route(route="health", methods=READING, auth_level=func.AuthLevel.ANONYMOUS)
    @answering_anybody
    async def health(req: Request) -> Answer:
        """GET /health: 200 when the store answers, 503 when it does not."""
        await check()
        return json_response(200, {"status": "healthy"})

    return app


def _admin(
    app: func.Blueprint, route: str, methods: Sequence[str] = READING, *, after: str = ""
) -> Callable[[Handler], object]:
    """A decorator: a call with the admin key. ``after`` ends the function's name."""

    def add(handler: Handler) -> object:
        function = app.route(route=route, methods=methods, auth_level=func.AuthLevel.ADMIN)(
            answering(handler)
        )
        return app.function_name(f"{getattr(handler, '__name__', '')}{after}")(function)

    return add


def _add_views(
    app: func.Blueprint, service: Callable[[], HasOutbox], names: Sequence[PathNames], lists: Sequence[str]
) -> None:
    @app.route(route="operations", methods=READING, auth_level=func.AuthLevel.ANONYMOUS)
    @answering_anybody.honouring("If-None-Match")
    async def get_operations_page(req: Request) -> Answer:
        """GET /operations: the page, which asks for the admin key and then calls the others."""
        return operations_page.shown(req)

    @_admin(app, "dependencies")
    async def get_dependencies(req: Request) -> Answer:
        """GET /dependencies: whether the store and the broker can be used; 200 also when one cannot."""
        looks = await asyncio.gather(*(each.health() for each in service().outbox.dependencies))
        return json_response(200, {"items": [asdict(each) for each in looks]})

    @_admin(app, "instance")
    async def get_instance(req: Request) -> Answer:
        """GET /instance: what the process that answers has forwarded, its settings, and the service's names."""
        return instance(service().outbox.instance, names, lists)

    @_admin(app, "events/{path}/{id}")
    async def list_events(req: Request) -> Answer:
        """GET /events/{path}/{id}?pageSize=&before=: the stored and the parked events of one aggregate."""
        aggregate, (size, before) = named_aggregate(req, names), events_request(req)
        page = await service().outbox.event_list.page(aggregate, size, before)
        return json_response(200, views.event_list(page, names))

    @_admin(app, "relay")
    async def get_relay(req: Request) -> Answer:
        """GET /relay: how far behind the relay is, and how many aggregates are parked."""
        return json_response(200, views.relay_status(await service().outbox.observer.status(), names))


def _add_parked(app: func.Blueprint, service: Callable[[], HasOutbox], names: Sequence[PathNames]) -> None:
    @_admin(app, "parked")
    async def list_parked(req: Request) -> Answer:
        """GET /parked?pageSize=&continuationToken=&state=: the events that cannot be sent, and those behind them."""
        (size, token), discarded = request.page_request(req, "state"), wants_discarded(req)
        parking = service().outbox.parking
        page = await parking.page(size, token, discarded=discarded)
        return json_response(200, views.parked_list(page, names, parking.max_age_seconds))

    @_admin(app, "parked/{id}")
    async def get_parked(req: Request) -> Answer:
        """GET /parked/{id}: one parked event, with its document."""
        wanted = parking_id(req)
        return json_response(200, views.parked_event(await service().outbox.parking.show(wanted), names))

    @_admin(app, "parked/{id}/discard", ["POST"])
    async def discard_parked(req: Request) -> Answer:
        """POST /parked/{id}/discard {"reason": ...}: give the event that is in the way up for good."""
        wanted, reason = parking_id(req), discard_reason(req)
        await service().outbox.parking.discard(wanted, reason)
        return responses.no_content()

    @_admin(app, "parked/{path}/{id}/replay", ["POST"])
    async def replay_parked(req: Request) -> Answer:
        """POST /parked/{path}/{id}/replay: send an aggregate's parked events in order."""
        aggregate = parked_aggregate(req, names)
        return json_response(200, views.replayed(await service().outbox.parking.replay(aggregate)))


def set_aside_functions(
    service: AnyService, of: str, names: Sequence[PathNames], *, path: str = ""
) -> func.Blueprint:
    """The functions for the subscriber ``of``; the service is wired at the first request.

    ``path`` comes before the routes of a second subscriber of one app, and at the end of its functions' names.
    """
    before, after = f"{path}/" if path else "", f"_{path.replace('-', '_')}" if path else ""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    def subscriber() -> "Subscriber":
        return service().subscriptions[of].subscriber

    @_admin(app, f"{before}subscriber", after=after)
    async def get_subscriber(req: Request) -> Answer:
        """GET /subscriber: how much is set aside, and what the walk has found and healed."""
        made = service().subscriptions[of]
        walk = await made.healing.progress() if made.healing else None
        return json_response(200, views.subscriber_status(await made.subscriber.retrier.counts(), walk))

    @_admin(app, f"{before}set-aside", after=after)
    async def list_set_aside(req: Request) -> Answer:
        """GET /set-aside?pageSize=&continuationToken=: the messages that wait or were refused, oldest first."""
        size, token = request.page_request(req)
        page = await subscriber().retrier.page(size, token)
        return json_response(200, views.set_aside_list(page, names))

    @_admin(app, f"{before}set-aside/{{id}}", after=after)
    async def get_set_aside(req: Request) -> Answer:
        """GET /set-aside/{id}: one record, with its message."""
        record = await subscriber().retrier.show(record_id(req))
        return json_response(200, views.set_aside_record(record, names))

    @_admin(app, f"{before}set-aside/{{id}}/apply", ["POST"], after=after)
    async def apply_set_aside(req: Request) -> Answer:
        """POST /set-aside/{id}/apply: try one record now, after those of its aggregate that come earlier."""
        await subscriber().retrier.apply(record_id(req))
        return responses.no_content()

    @_admin(app, f"{before}set-aside/{{id}}/discard", ["POST"], after=after)
    async def discard_set_aside(req: Request) -> Answer:
        """POST /set-aside/{id}/discard {"reason": ...}: give one record up for good."""
        wanted, reason = record_id(req), discard_reason(req)
        await subscriber().retrier.discard(wanted, reason)
        return responses.no_content()

    @_admin(app, f"{before}dead-letters/collect", ["POST"], after=after)
    async def collect_dead_letters(req: Request) -> Answer:
        """POST /dead-letters/collect: move the subscription's dead letters into records."""
        found = await subscriber().collect()
        return json_response(200, {"collected": found.messages, "emptied": found.emptied})

    return app


def named_aggregate(req: Request, names: Sequence[PathNames]) -> AggregateKey:
    """The aggregate in the path. Raises AggregateNotFound when the service has no aggregates of that name."""
    return _aggregate(req, names, AggregateNotFound, "events/{}/{{id}}")


def parked_aggregate(req: Request, names: Sequence[PathNames]) -> AggregateKey:
    """The same. Raises NotParked: there are none of that name."""
    return _aggregate(req, names, NotParked, "parked/{}/{{id}}/replay")


def _aggregate(
    req: Request, names: Sequence[PathNames], refused: type[OutboxError], call: str
) -> AggregateKey:
    path, aggregate_id = req.route["path"], req.route["id"]
    kind = next((each.aggregate_type for each in names if each.path == path), None)
    if kind is None:
        calls = ", ".join(call.format(each.path) for each in names)
        raise refused(f"this service has no {path}: call {calls}")
    if len(aggregate_id.encode()) > _LONGEST_ID:
        raise refused("nothing can be stored under an id that is so long")
    return AggregateKey(kind, aggregate_id)


def events_request(req: Request) -> tuple[int, int | None]:
    """How many events, and below which sequence (None: the newest). Raises InvalidRequest."""
    given = request.query(req, "pageSize", "before")
    size, before = request.page_size(given), given.get("before")
    if before is not None and not _SEQUENCE.fullmatch(before):
        raise InvalidRequest(FieldError("before", "must be the number that the page before gave"))
    return size, None if before is None else int(before)


def parking_id(req: Request) -> str:
    """The id of the parked event in the path. Raises NotParked when no event can have the id."""
    if not _PARKING_ID.fullmatch(req.route.get("id", "")):
        raise NotParked("no such event is parked: take an id from the list of parked events")
    return req.route["id"]


def record_id(req: Request) -> str:
    """The id of the record in the path. Raises NotSetAside when no record can have the id."""
    if not _PARKING_ID.fullmatch(req.route.get("id", "")):
        raise NotSetAside("no record has this id: take an id from the list of what is set aside")
    return req.route["id"]


def discard_reason(req: Request) -> str:
    """The reason in the body. Raises InvalidRequest."""
    return validated(Discard, request.json_object(req, "application/json")).reason


def wants_discarded(req: Request) -> bool:
    """Whether the query asks for the discarded events: ``state=discarded``. Raises InvalidRequest."""
    state = request.query(req, *request.PAGE, "state").get("state", "parked")
    if state not in ("parked", "discarded"):
        raise InvalidRequest(FieldError("state", "must be parked or discarded"))
    return state == "discarded"


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
