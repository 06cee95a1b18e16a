"""Implements the calls on any resource: versions, idempotency keys, pages and refusals are the same for all.

A server gets the calls as a list of routes and handlers, and depends on nothing else of them.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

from cosmos_outbox.http import listing, request
from cosmos_outbox.http.answering import Answering, status_of
from cosmos_outbox.http.message import READING, Answer, Handler, Request
from cosmos_outbox.http.problems import UNKNOWN_PATH
from cosmos_outbox.http.resource import Action, Resource
from cosmos_outbox.http.responses import Representation, problem
from cosmos_outbox.http.validation import patched, replaced, validated
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Aggregate, ChangeAnswer, ETag, Origin
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.service import Wired

A = TypeVar("A", bound=Aggregate[Any])
D = TypeVar("D", bound=BaseModel)

JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"

CallerOf = Callable[[Request], str | None]
"""Returns the sender of a request as the program knows it, such as a user's id. Idempotency keys are scoped to it.

A change's events carry a digest of it (``causedBy``); the digest of an id that is easy to guess reveals the id.
"""


@dataclass(frozen=True)
class Call:
    """A route with its handler and its description, for a router and for the API document."""

    name: str
    """The name of its function, such as ``create_order``; unique in the service."""
    method: str
    route: str
    """The path below the API's root, without a leading slash: ``orders/{id}``."""
    handler: Handler
    summary: str
    honours: Sequence[str] = ()
    """The condition and key headers (``HONOURED``) that it supports."""
    takes: Sequence[str] = ()
    """The media types that its body may have."""
    body: type[BaseModel] | None = None
    status: HTTPStatus = HTTPStatus.OK
    resource: Resource[Any, Any] | None = None
    """The resource that it is a call on."""

    @property
    def query(self) -> Sequence[str]:
        """The query parameters that it accepts."""
        if self.method != "GET" or "{id}" in self.route or self.resource is None:
            return ()
        return (*request.PAGE, *listing.names(self.resource.kind))

    @property
    def methods(self) -> Sequence[str]:
        """The methods that it accepts; a GET call accepts HEAD too."""
        return READING if self.method == "GET" else (self.method,)


def calls(
    service: Callable[[], Wired],
    resources: Sequence[Resource[Any, Any]],
    *,
    caller_of: CallerOf | None = None,
) -> list[Call]:
    """Returns the calls on these resources; ``service`` is first called at the first request."""
    return [call for each in resources for call in _Calls(service, each, caller_of).listed()]


class _Calls(Generic[A, D]):
    def __init__(
        self, service: Callable[[], Wired], resource: Resource[A, D], caller_of: CallerOf | None
    ) -> None:
        self._service, self._resource, self._caller_of = service, resource, caller_of
        self._shown = Representation(resource.shown)
        self._name = _snake(resource.kind.aggregate_type)
        self._answering = Answering(status_of(resource.errors), check_load=self._check_load)

    def _check_load(self) -> None:
        self._service().outbox.shedder.check()

    def listed(self) -> Iterator[Call]:
        resource, path, name = self._resource, self._resource.path, self._name
        one, plural = f"{path}/{{id}}", _snake(path)
        dated = ["If-Unmodified-Since"] if request.has_dates(resource.kind) else []
        of_a_change = ("If-Match", "If-None-Match", "Idempotency-Key", *dated)
        if resource.create:
            yield self._call(
                f"create_{name}", "POST", path, self._create, f"create a {name}", "Idempotency-Key",
                takes=[JSON], body=resource.new, status=HTTPStatus.CREATED,
            )  # fmt: skip
        yield self._call(f"list_{plural}", "GET", path, self._list, f"list {plural}, a page a call")
        yield self._call(
            f"get_{name}", "GET", one, self._get,
            f"read a {name}; Cache-Control: no-cache asks for no older state than that of the call", "If-None-Match",
        )  # fmt: skip
        if resource.change:
            yield self._call(
                f"patch_{name}", "PATCH", one, self._revising(patched, MERGE_PATCH, JSON),
                f"change a {name} with a JSON Merge Patch (RFC 7396)",
                *of_a_change, takes=[MERGE_PATCH, JSON], body=resource.new,
            )  # fmt: skip
            yield self._call(
                f"put_{name}", "PUT", one, self._revising(replaced, JSON),
                f"replace a {name}; what was read may be sent back whole",
                *of_a_change, takes=[JSON], body=resource.new,
            )  # fmt: skip
        if resource.delete:
            yield self._call(
                f"delete_{name}", "DELETE", one, self._delete, f"delete a {name}", *of_a_change,
                status=HTTPStatus.NO_CONTENT,
            )  # fmt: skip
        for action in resource.actions:
            yield self._call(
                f"post_{name}_{_snake(action.name)}", "POST", f"{one}/{action.name}", self._acting(action),
                f"{action.name} of a {name}", *of_a_change, takes=[JSON] if action.body else [], body=action.body,
            )  # fmt: skip

    def _call(  # noqa: PLR0913 - a call has many parts
        self,
        name: str,
        method: str,
        route: str,
        handler: Handler,
        summary: str,
        *honours: str,
        takes: Sequence[str] = (),
        body: type[BaseModel] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Call:
        answered = self._answering.accepting(*honours)(handler)
        return Call(name, method, route, answered, summary, honours, takes, body, status, self._resource)

    async def _create(self, req: Request) -> Answer:
        resource, key, at = self._resource, request.idempotency_key(req), utc_now()
        assert resource.create is not None, "without it there is no such call"
        details, create = validated(self._new(), request.json_object(req, JSON)), resource.create
        service, origin = self._service().outbox, self._origin(req)
        if key is None:
            made = create(details, id=new_id(), at=at)
            return self._shown.created(req, await service.aggregates.create(made, origin))
        keyed = request.keyed(req, service.settings, key, who=self._who(req))

        def make(new_id: UUID) -> A:
            return create(details, id=new_id, at=at)

        receipt, replayed = await service.aggregates.create_once(make, keyed, origin)
        return self._shown.created(req, receipt, replayed=replayed)

    async def _list(self, req: Request) -> Answer:
        kind = self._resource.kind
        selection, names = listing.selection(req, kind), listing.names(kind)
        size, token = request.page_request(req, *names)
        as_of = listing.as_of(token)  # before the store is asked
        page = await self._service().outbox.aggregates.page(kind, size, token, request.origin(req), selection)
        return self._shown.listed(page, listing.next_link(req, page.continuation_token, *names), as_of)

    async def _get(self, req: Request) -> Answer:
        wanted, newest = self._id(req), request.wants_newest(req)
        aggregates, kind = self._service().outbox.aggregates, self._resource.kind
        return self._shown.found(req, await aggregates.read(kind, wanted, request.origin(req), newest=newest))

    def _revising(self, revised: Callable[..., D], *takes: str) -> Handler:
        """Returns the handler of PATCH or PUT: ``revised`` makes the new details from the old ones and the body."""

        async def revise(req: Request) -> Answer:
            wanted, body = self._id(req), request.json_object(req, *takes)
            model, resource = self._new(), self._resource
            assert resource.change is not None, "without it there is no such call"
            change, (sent, etag) = resource.change, request.taken_from(body)

            def apply(aggregate: A) -> None:
                details = revised(model, resource.current(aggregate), resource.shown(aggregate), sent)
                change(aggregate, details, at=utc_now())

            return self._shown.answered(wanted, await self._change(req, wanted, apply, etag=etag))

        return revise

    def _new(self) -> type[D]:
        assert self._resource.new is not None, "checked when it was declared"
        return self._resource.new

    async def _delete(self, req: Request) -> Answer:
        wanted, delete = self._id(req), self._resource.delete
        assert delete is not None, "without it there is no such call"

        def apply(aggregate: A) -> None:
            delete(aggregate, at=utc_now())

        return self._shown.deleted(wanted, await self._change(req, wanted, apply, has_body=False))

    def _acting(self, action: Action) -> Handler:
        async def act(req: Request) -> Answer:
            wanted = self._id(req)
            sent = [validated(action.body, request.json_object(req, JSON))] if action.body else []

            def run(aggregate: A) -> None:
                action.run(aggregate, *sent, at=utc_now())

            changed = await self._change(req, wanted, run, action=action.name, has_body=bool(sent))
            return self._shown.answered(wanted, changed)

        return act

    async def _change(  # noqa: PLR0913 - keywords, mostly defaults
        self,
        req: Request,
        wanted: str,
        change: Callable[[A], None],
        *,
        etag: ETag | None = None,
        action: str = "",
        has_body: bool = True,
    ) -> ChangeAnswer[A]:
        kind, asked, origin = self._resource.kind, request.of_change(req, etag), self._origin(req)
        key, service = request.idempotency_key(req), self._service().outbox
        if key is None:
            receipt = await service.aggregates.change(
                kind, wanted, change, origin, if_match=asked.if_match, refuse=asked.refuses
            )
            return ChangeAnswer(receipt.aggregate.state.last_sequence, receipt)
        status_of = self._answering.refusal_status
        keyed = request.keyed_change(
            req, service.settings, key, status_of, action=action, has_body=has_body, who=self._who(req)
        )
        return await service.aggregates.change_once(
            kind, wanted, change, keyed, origin, if_match=asked.if_match, refuse=asked.refuses
        )

    def _origin(self, req: Request) -> Origin:
        return request.origin(req, self._service().outbox.settings, who=self._who(req))

    def _who(self, req: Request) -> str | None:
        return (self._caller_of and self._caller_of(req)) or None

    def _id(self, req: Request) -> str:
        found = request.path_id(req)
        if found is None:
            raise AggregateNotFound(f"there is no such {self._name}: the id in the path must be a UUID")
        return str(found)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"[-/]", "_", name)).lower()


_PARAMETER = re.compile(r"\{[^{}*]+\}")


@dataclass(frozen=True)
class Path:
    """A path below the API's root, and the methods that it accepts."""

    route: str
    """The path as declared, without a leading slash: ``orders/{id}``."""
    methods: Collection[str]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("([^/]+)".join(map(re.escape, _PARAMETER.split(self.route))))

    @property
    def shape(self) -> str:
        """The route without its parameter names: paths of equal shape match the same requests."""
        return _PARAMETER.sub("{}", self.route)

    def parts(self, path: str) -> Mapping[str, str] | None:
        """Returns the values of the route's parameters in ``path``; None: the path does not match."""
        found = self._pattern.fullmatch(path)
        names = [name[1:-1] for name in _PARAMETER.findall(self.route)]
        return None if found is None else dict(zip(names, found.groups(), strict=True))


def no_such_call(request: Request, path: str, known: Sequence[Path], hint: str) -> Answer:
    """Returns 405 when a known path accepts other methods, otherwise 404 with a hint.

    The Functions host answers 404 for a known route with another method (azure-functions-host issues 9876 and 10098),
    and Python routers list the methods of only one of several routes with the same path: so one catch-all call answers.

    This 404 has another problem type than that of a missing aggregate: a subscriber with a wrong source address must
    not take it for a deletion (:mod:`cosmos_outbox.sources.http`).
    """
    taken = {method for each in known if each.parts(path) is not None for method in each.methods}
    # A request with an accepted method gets here only if its path differs slightly, such as by a trailing slash.
    if not taken or request.method in taken:
        return problem(404, UNKNOWN_PATH, f"There is nothing at this path: {hint}.")
    allowed = ", ".join(sorted(taken))
    detail = f"This path does not take {request.method}; it takes {allowed}."
    return problem(405, "Method not allowed", detail, headers={"Allow": allowed})
