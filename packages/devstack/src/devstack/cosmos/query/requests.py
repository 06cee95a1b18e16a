"""Which way a query goes: answered here, or refused with 400/1004 so that the client gets its plan and merges itself.

A query that names its partition, or whose WHERE names one partition key, is answered whole. One over all partitions is
answered only when results can simply follow one another; merging them is the client's part, as with the service.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from devstack.cosmos.protocol.errors import NEEDS_QUERY_PLAN, CosmosError, bad_request
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.query import tree
from devstack.cosmos.query.aggregate import whole_result
from devstack.cosmos.query.continuation import decode, digest, encode
from devstack.cosmos.query.page import Page, Task, first_position, is_whole, read_page
from devstack.cosmos.query.parse import parse
from devstack.cosmos.query.plan import query_plan
from devstack.cosmos.resources.reading import Reading, reading
from devstack.cosmos.resources.scope import Scope, read_scope
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage import session
from devstack.cosmos.storage.epk import Component, Components, Undefined
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.partition_key import stored_form
from devstack.cosmos.wire import charge
from devstack.cosmos.wire.messages import Answer, Request

ALL_ITEMS = "SELECT * FROM c"
SUPPORTED_FEATURES = "x-ms-cosmos-supported-query-features"


@dataclass(frozen=True)
class Statement:
    """The text of a query and the values of its parameters, by name without the ``@``."""

    text: str
    parameters: Mapping[str, Any]

    @classmethod
    def from_body(cls, body: Json) -> "Statement":
        """Raises 400."""
        text, given = body.get("query"), body.get("parameters") or []
        if not isinstance(text, str) or not isinstance(given, list):
            raise bad_request(
                "The body of a query must hold its text as 'query', and 'parameters' as an array."
            )
        parameters: dict[str, Any] = {}
        for parameter in given:
            name = parameter.get("name") if isinstance(parameter, dict) else None
            if not isinstance(name, str) or not name.startswith("@"):
                raise bad_request("A parameter of a query needs a name that begins with '@'.")
            parameters[name[1:]] = parameter.get("value")
        return cls(text, parameters)


def query_items(service: Service, request: Request) -> Answer:
    """One page of a query."""
    statement = Statement.from_body(request.json())
    query = parse(statement.text)
    container = service.container(request)
    asked = read_scope(container, request)
    scope = _pinned(container, query, statement, asked)
    scope.check_named(request)
    if not asked.named:
        _check_servable(request, query, statement.parameters)
    return _answer(service, request, container, scope, statement, query)


def list_items(service: Service, request: Request) -> Answer:
    """One page of all items."""
    container = service.container(request)
    scope = read_scope(container, request)
    return _answer(service, request, container, scope, Statement(ALL_ITEMS, {}), parse(ALL_ITEMS))


def plan(service: Service, request: Request) -> Answer:
    """The plan by which a client reads the query from all partitions."""
    statement = Statement.from_body(request.json())
    query = parse(statement.text)
    container = service.container(request)
    components = _pinned_key(container, query, statement.parameters)
    effective = None if components is None else container.key.effective(components)
    features = [name.strip() for name in request.headers.get(SUPPORTED_FEATURES, "").split(",")]
    made = query_plan(query, statement.parameters, effective, features=features)
    return Answer(200, dump_json(made), charge=0.0)


def query_resources(documents: tuple[str, list[Json]], request: Request, name: str) -> Answer:
    """A query over databases, containers or offers: few enough to be answered in one page."""
    statement = Statement.from_body(request.json())
    query = parse(statement.text)
    if query.order_by or query.top or query.offset or query.limit:
        raise bad_request("A query over resources that are no items has no ORDER BY, TOP, OFFSET or LIMIT.")
    owner, rows = documents
    return list_resources((owner, whole_result(query, statement.parameters, rows)), name)


def list_resources(documents: tuple[str, list[Json]], name: str) -> Answer:
    """All databases, containers or offers."""
    owner, rows = documents
    body = {"_rid": owner, name: rows, "_count": len(rows)}
    return Answer(200, dump_json(body), {"x-ms-item-count": str(len(rows))})


def _check_servable(request: Request, query: tree.Query, parameters: Mapping[str, Any]) -> None:
    """Raises 400/1004 for a query over all partitions whose results must be merged.

    The refusal has the plan with it, and JavaScript's client asks for none otherwise.
    """
    if not request.flag("x-ms-documentdb-query-enablecrosspartition"):
        return
    if is_whole(query) or query.order_by or query.top or query.offset or query.limit:
        made = query_plan(query, parameters, None, features=["GroupBy"])
        raise CosmosError(
            NEEDS_QUERY_PLAN,
            "The provided cross partition query can not be directly served by the gateway: ask for its plan.",
            details={"additionalErrorInfo": dump_json(made)},
        )


def _answer(  # noqa: PLR0913, PLR0917 - a query is made of these
    service: Service,
    request: Request,
    container: Container,
    scope: Scope,
    statement: Statement,
    query: tree.Query,
) -> Answer:
    run = service.store.connection
    seen = reading(service, request, container, scope.ranges)
    binding = digest(container.rid, statement.text, dump_json(statement.parameters), *_scope_parts(scope))
    token = request.headers.get("x-ms-continuation")
    start = decode(token, binding) if token else first_position(query, statement.parameters)
    task = Task(run, seen.container, scope, query, statement.parameters, service.now())
    page = read_page(task, start, request.page_size)
    return _page_answer(seen, scope, page, binding)


def _scope_parts(scope: Scope) -> tuple[str, ...]:
    return (scope.key,) if scope.key is not None else (scope.minimum, scope.maximum)


def _page_answer(seen: Reading, scope: Scope, page: Page, binding: str) -> Answer:
    documents = ",".join(page.results)
    body = f'{{"_rid":"{seen.container.rid}","Documents":[{documents}],"_count":{len(page.results)}}}'
    tokens = [session.token(part, seen.lsns[part.id]) for part in scope.ranges]
    headers = {
        "x-ms-session-token": ",".join(tokens),
        "x-ms-item-count": str(len(page.results)),
        "x-ms-alt-content-path": seen.container.link,
        "x-ms-content-path": seen.container.rid,
    }
    if len(scope.ranges) == 1:
        headers["x-ms-documentdb-partitionkeyrangeid"] = str(scope.ranges[0].id)
    if page.next is not None:
        headers["x-ms-continuation"] = encode(page.next, binding)
    return Answer(200, body, headers, charge.of_page(len(page.results), len(body)))


def _pinned(container: Container, query: tree.Query, statement: Statement, scope: Scope) -> Scope:
    """The scope, narrowed to the one partition key that the query's WHERE asks for."""
    components = None if scope.key is not None else _pinned_key(container, query, statement.parameters)
    if components is None:
        return scope
    effective = container.key.effective(components)
    ranges = tuple(part for part in scope.ranges if part.holds(effective))
    return replace(scope, ranges=ranges or scope.ranges[:1], key=stored_form(components), named=True)


def _pinned_key(container: Container, query: tree.Query, parameters: Mapping[str, Any]) -> Components | None:
    if query.where is None or not query.root:
        return None
    found = dict(_equalities(query.where, query.root, parameters))
    values = [found.get(path) for path in container.key.paths]
    return None if None in values else tuple(value[0] for value in values if value)


def _equalities(
    where: tree.Expression, root: str, parameters: Mapping[str, Any]
) -> list[tuple[tuple[str, ...], tuple[Component]]]:
    """The paths that must equal one constant for the condition to hold."""
    match where:
        case tree.Binary("AND", left, right):
            return _equalities(left, root, parameters) + _equalities(right, root, parameters)
        case tree.Binary("=", left, right):
            for side, other in ((left, right), (right, left)):
                path, value = tree.path_of(side, root), _value(other, parameters)
                if path and value is not None:
                    return [(path, value)]
    return []


def _value(expression: tree.Expression, parameters: Mapping[str, Any]) -> tuple[Component] | None:
    match expression:
        case tree.Constant(value):
            found = value
        case tree.Parameter(name) if name in parameters:
            found = parameters[name]
        case _:
            return None
    return None if isinstance(found, dict | list | Undefined) else (found,)
