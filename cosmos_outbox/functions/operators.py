"""Registers the HTTP functions of operators, alike for every service: a page, health, the relay, what is stuck.

The names of these functions sort before ``unrouted``. All of them need the admin key, but for health and for the page,
which holds no data. Only the answer with one thing that is stuck holds personal data.
"""

import asyncio
import base64
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import azure.functions as func
from pydantic import StringConstraints

from cosmos_outbox.functions.http import HttpFunctions
from cosmos_outbox.http import request
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.documents import kept
from cosmos_outbox.http.message import READING, Answer, Handler, Request
from cosmos_outbox.http.problems import FieldError, InvalidRequest
from cosmos_outbox.http.responses import json_response, no_content
from cosmos_outbox.http.validation import validated
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.event import WireModel
from cosmos_outbox.service import Service

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.relay.forwarding import Instance

_LONGEST_ID = 1023
"""In bytes: the longest that the id of an item may be, and so that of an aggregate."""
_SEQUENCE = re.compile(r"[1-9][0-9]{0,14}")

answering = HttpFunctions(Answering())
answering_anybody = HttpFunctions(Answering(log_every_seconds=60))
"""Of the functions that need no key."""


class Discard(WireModel):
    """The body of a call that cannot be taken back: the reason."""

    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


def operator_functions(service: Service) -> func.Blueprint:
    """The operator's functions; the service is wired at the first request. One that only subscribes has no relay."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    @app.route(route="health", methods=READING, auth_level=func.AuthLevel.ANONYMOUS)
    @answering_anybody
    async def health(req: Request) -> Answer:
        """GET /health: 200 when the store answers, 503 when it does not."""
        await service().check()
        return json_response(200, {"status": "healthy"})

    _add_stuck(app, service)
    if service.publishes:
        _add_relay(app, service)
    return app


def _admin(app: func.Blueprint, route: str, methods: Sequence[str] = READING) -> Callable[[Handler], object]:
    """A decorator: a call with the admin key."""
    return lambda handler: app.route(route=route, methods=methods, auth_level=func.AuthLevel.ADMIN)(
        answering(handler)
    )


def _add_stuck(app: func.Blueprint, service: Service) -> None:
    @_admin(app, "stuck")
    async def list_stuck(req: Request) -> Answer:
        """GET /stuck?pageSize=&continuationToken=&state=: events that cannot be sent, messages that were set aside."""
        (size, token), discarded = request.page_request(req, "state"), wants_discarded(req)
        return json_response(200, (await service().stuck.page(size, token, discarded=discarded)).view())

    @_admin(app, "stuck/{id}")
    async def get_stuck(req: Request) -> Answer:
        """GET /stuck/{id}: one of them, with the event's document or the message."""
        return json_response(200, (await service().stuck.show(req.route["id"])).whole_view())

    @_admin(app, "stuck/{id}/retry", ["POST"])
    async def retry_stuck(req: Request) -> Answer:
        """POST /stuck/{id}/retry: send or apply it now, with those of its aggregate that come before it."""
        return json_response(200, (await service().stuck.retry(req.route["id"])).view())

    @_admin(app, "stuck/{id}/discard", ["POST"])
    async def discard_stuck(req: Request) -> Answer:
        """POST /stuck/{id}/discard {"reason": ...}: give it up for good."""
        reason = validated(Discard, request.json_object(req, "application/json")).reason
        await service().stuck.discard(req.route["id"], reason)
        return no_content()

    @_admin(app, "subscribers")
    async def get_subscribers(req: Request) -> Answer:
        """GET /subscribers: how much each has set aside, and what its walk has found and healed."""
        found = [await each.view(name) for name, each in service().subscriptions.items()]
        return json_response(200, {"items": found})

    @_admin(app, "dead-letters/collect", ["POST"])
    async def collect_dead_letters(req: Request) -> Answer:
        """POST /dead-letters/collect: move the dead letters of all subscriptions to what is stuck."""
        found = [await each.subscriber.collect() for each in service().subscriptions.values()]
        collected, emptied = sum(each.messages for each in found), all(each.emptied for each in found)
        return json_response(200, {"collected": collected, "emptied": emptied})


def _add_relay(app: func.Blueprint, service: Service) -> None:
    types = service.aggregate_types

    @app.route(route="operations", methods=READING, auth_level=func.AuthLevel.ANONYMOUS)
    @answering_anybody.accepting("If-None-Match")
    async def get_operations_page(req: Request) -> Answer:
        """GET /operations: the page, which asks for the admin key and then calls the others."""
        return show_page(req)

    @_admin(app, "dependencies")
    async def get_dependencies(req: Request) -> Answer:
        """GET /dependencies: whether the store and the broker can be used; 200 also when one cannot."""
        looks = await asyncio.gather(*(each.health() for each in service().operator.dependencies))
        return json_response(200, {"items": [asdict(each) for each in looks]})

    @_admin(app, "instance")
    async def get_instance(req: Request) -> Answer:
        """GET /instance: what the process that answers has forwarded, its settings, and the service's aggregates."""
        return json_response(200, instance(service().relay.forwarding.instance, types))

    @_admin(app, "events/{type}/{id}")
    async def list_events(req: Request) -> Answer:
        """GET /events/{type}/{id}?pageSize=&before=: the stored and the parked events of one aggregate."""
        aggregate, (size, before) = named_aggregate(req, types), events_request(req)
        return json_response(200, (await service().operator.event_list.page(aggregate, size, before)).view())

    @_admin(app, "relay")
    async def get_relay(req: Request) -> Answer:
        """GET /relay: how far behind the relay is, and how many aggregates are parked."""
        return json_response(200, (await service().operator.observer.status()).view())


def named_aggregate(req: Request, types: Sequence[str]) -> AggregateKey:
    """The aggregate in the path. Raises AggregateNotFound: the service has no such type, or nothing has such an id."""
    kind, aggregate_id = req.route["type"], req.route["id"]
    if kind not in types:
        raise AggregateNotFound(f"this service has no {kind}; it has: {', '.join(types)}")
    if len(aggregate_id.encode()) > _LONGEST_ID:
        raise AggregateNotFound("no stored id is as long as this one")
    return AggregateKey(kind, aggregate_id)


def events_request(req: Request) -> tuple[int, int | None]:
    """How many events, and below which sequence (None: the newest). Raises InvalidRequest."""
    given = request.query(req, "pageSize", "before")
    size, before = request.page_size(given), given.get("before")
    if before is not None and not _SEQUENCE.fullmatch(before):
        raise InvalidRequest(FieldError("before", "must be the number that the page before gave"))
    return size, None if before is None else int(before)


def wants_discarded(req: Request) -> bool:
    """Whether the query asks for the discarded events: ``state=discarded``. Raises InvalidRequest."""
    state = request.query(req, *request.PAGE, "state").get("state")
    if state not in (None, "discarded"):
        raise InvalidRequest(FieldError("state", "must be discarded, or left out for what is stuck"))
    return state is not None


def instance(process: "Instance", types: Sequence[str]) -> dict[str, Any]:
    """Describes one process: what it has forwarded, its settings without secrets, the types of the aggregates."""
    return {
        "id": process.id,
        "startedAt": process.started_at.isoformat(),
        "forwarded": process.forwarded,
        "aggregates": list(types),
        "settings": dict(process.settings),
    }


_FOLDER = Path(__file__).parent / "page"
_STYLE, _SCRIPT = "/* style.css */", "/* script */"
"""The marks in index.html that the other files replace."""

SCRIPTS = ("dom", "service", "work", "events", "stuck", "views", "main")
"""The parts of the one script, in their order: each uses what stands before it."""


@functools.cache
def page() -> tuple[bytes, str]:
    """The document, put together at the first request, and the policy under which a browser shows it.

    The page is open, since a browser cannot send a key when it opens a page, and holds no data: what it shows comes
    from calls that need the key. Its policy lets the browser run and load nothing but what is in the document itself,
    named by digests, and lets it ask nobody but this service.
    """
    html, style = ((_FOLDER / name).read_text("utf-8") for name in ("index.html", "style.css"))
    script = "\n".join((_FOLDER / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    assert html.count(_STYLE) == html.count(_SCRIPT) == 1, "index.html has one place for each"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; connect-src 'self'; "
        "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return html.replace(_STYLE, style).replace(_SCRIPT, script).encode(), policy


def show_page(req: Request) -> Answer:
    """200 with the page, or 304 when the browser has this version."""
    html, policy = page()
    powers = {
        "X-Content-Type-Options": "nosniff", "Permissions-Policy": "camera=(), geolocation=(), microphone=()"
    }  # fmt: skip
    return kept(req, html, "text/html", policy).with_headers(powers)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
