"""One request in, one answer out: authorised, routed, carried out; every failure in the service's own form."""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from devstack.cosmos.feed import change_feed
from devstack.cosmos.items import batch, single
from devstack.cosmos.protocol.errors import (
    INTERNAL_ERROR,
    METHOD_NOT_ALLOWED,
    SERVICE_UNAVAILABLE,
    CosmosError,
    no_such_resource,
    unsupported,
)
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.query import requests
from devstack.cosmos.resources import account, containers, databases, offers, partitions, scripts
from devstack.cosmos.resources.scope import read_scope
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage.etag import new_id
from devstack.cosmos.wire.auth import Authorizer
from devstack.cosmos.wire.budget import Budget
from devstack.cosmos.wire.faults import Faults, changed, instead, lagging, late, met
from devstack.cosmos.wire.messages import Answer, Request
from devstack.cosmos.wire.routes import Kind, parse_path

Handler = Callable[[Service, Request], Answer]
Documents = tuple[str, list[Json]]

_TRIGGER_HEADERS = ("x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include")

_log = logging.getLogger(__name__)


def _is_query(request: Request) -> bool:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return request.flag("x-ms-documentdb-isquery") or kind == "application/query+json"


def _post_items(service: Service, request: Request) -> Answer:
    if request.flag("x-ms-cosmos-is-query-plan-request"):
        return requests.plan(service, request)
    if request.flag("x-ms-cosmos-is-batch-request"):
        return batch.execute(service, request)
    if _is_query(request):
        return requests.query_items(service, request)
    return single.create(service, request)


def _get_items(service: Service, request: Request) -> Answer:
    return (change_feed.read if "A-IM" in request.headers else requests.list_items)(service, request)


def _conflicts(service: Service, request: Request) -> Documents:
    """There is one region, so no write conflicts with another region's."""
    return service.container(request).rid, []


def _query_conflicts(service: Service, request: Request) -> Answer:
    read_scope(service.container(request), request).check_named(request)
    return requests.query_resources(_conflicts(service, request), request, "Conflicts")


def _no_conflict(_service: Service, _request: Request) -> Answer:
    raise no_such_resource()


def _lists(documents: Callable[[Service, Request], Documents], name: str) -> Handler:
    return lambda service, request: requests.list_resources(documents(service, request), name)


def _queries_or(documents: Callable[[Service, Request], Documents], name: str, create: Handler) -> Handler:
    """A POST to a feed is a query of it, or makes a new member."""

    def handle(service: Service, request: Request) -> Answer:
        if _is_query(request):
            return requests.query_resources(documents(service, request), request, name)
        return create(service, request)

    return handle


def _list_scripts(service: Service, request: Request) -> Answer:
    name = scripts.FEEDS[request.target.type]
    return requests.list_resources(scripts.documents(service, request), name)


def _post_scripts(service: Service, request: Request) -> Answer:
    name = scripts.FEEDS[request.target.type]
    return _queries_or(scripts.documents, name, scripts.create)(service, request)


def _no_new_offer(_service: Service, _request: Request) -> Answer:
    raise CosmosError(
        METHOD_NOT_ALLOWED, "Offers are made with the database or container that they belong to."
    )


_HANDLERS: dict[tuple[str, Kind], Handler] = {
    ("GET", Kind.ACCOUNT): account.read,
    ("POST", Kind.DATABASES): _queries_or(databases.documents, "Databases", databases.create),
    ("GET", Kind.DATABASES): _lists(databases.documents, "Databases"),
    ("GET", Kind.DATABASE): databases.read,
    ("DELETE", Kind.DATABASE): databases.delete,
    ("POST", Kind.CONTAINERS): _queries_or(containers.documents, "DocumentCollections", containers.create),
    ("GET", Kind.CONTAINERS): _lists(containers.documents, "DocumentCollections"),
    ("GET", Kind.CONTAINER): containers.read,
    ("PUT", Kind.CONTAINER): containers.replace,
    ("DELETE", Kind.CONTAINER): containers.delete,
    ("GET", Kind.RANGES): partitions.read,
    ("POST", Kind.ITEMS): _post_items,
    ("GET", Kind.ITEMS): _get_items,
    ("GET", Kind.ITEM): single.read,
    ("PUT", Kind.ITEM): single.replace,
    ("PATCH", Kind.ITEM): single.patch,
    ("DELETE", Kind.ITEM): single.delete,
    ("POST", Kind.PARTITION_KEY): single.delete_partition_key,
    ("GET", Kind.SCRIPTS): _list_scripts,
    ("POST", Kind.SCRIPTS): _post_scripts,
    ("GET", Kind.SCRIPT): scripts.read,
    ("PUT", Kind.SCRIPT): scripts.replace,
    ("DELETE", Kind.SCRIPT): scripts.delete,
    ("POST", Kind.SCRIPT): scripts.execute,
    ("GET", Kind.CONFLICTS): _lists(_conflicts, "Conflicts"),
    ("POST", Kind.CONFLICTS): _query_conflicts,
    ("GET", Kind.CONFLICT): _no_conflict,
    ("DELETE", Kind.CONFLICT): _no_conflict,
    ("POST", Kind.OFFERS): _queries_or(offers.documents, "Offers", _no_new_offer),
    ("GET", Kind.OFFERS): _lists(offers.documents, "Offers"),
    ("GET", Kind.OFFER): offers.read,
    ("PUT", Kind.OFFER): offers.replace,
}


class Dispatcher:
    """Serves requests one after the other; ``authorizer`` decides who may ask at all."""

    def __init__(self, service: Service, authorizer: Authorizer, faults: Faults) -> None:
        self._service = service
        self._authorizer = authorizer
        self._faults = faults
        budget = service.options.ru_budget
        self._budget = None if budget is None else Budget(budget)

    def late(self, method: str, raw_path: str, headers: Mapping[str, str]) -> float:
        """How many seconds the request is on its way, before it is served: for faults on demand."""
        if not self._faults.pending():
            return 0.0
        try:
            return late(self._faults, Request(method, parse_path(raw_path), headers, b"", unquote(raw_path)))
        except CosmosError:
            return 0.0  # it is refused when it is served

    def serve(self, method: str, raw_path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Never raises: what goes wrong becomes an answer."""
        activity = headers.get("x-ms-activity-id") or str(new_id(self._service.store.chance))
        try:
            request = Request(method, parse_path(raw_path), headers, body, unquote(raw_path))
            self._authorizer.check(request)
            answer = self._with_faults(request, activity)
        except CosmosError as error:
            answer = failure(error, activity)
        except sqlite3.Error as error:
            _log.exception("the store failed")
            answer = failure(CosmosError(SERVICE_UNAVAILABLE, f"The store failed: {error}"), activity)
        except Exception as error:  # noqa: BLE001 - a defect of ours must not look like a mistake of the client's
            _log.exception("the request failed")
            answer = failure(CosmosError(INTERNAL_ERROR, f"devstack failed: {error!r}"), activity)
        answer.headers["x-ms-activity-id"] = activity
        return answer

    def _with_faults(self, request: Request, activity: str) -> Answer:
        request = lagging(self._faults, request)
        fault = met(self._faults, request)
        if fault is None:
            return self._within_budget(request)
        if answer := instead(fault, request):
            return answer
        try:
            answer = self._within_budget(request)
        except CosmosError as error:
            answer = failure(error, activity)
        return changed(fault, answer)

    def _within_budget(self, request: Request) -> Answer:
        if self._budget is None or request.target.type != "docs":
            return self._carry_out(request)
        self._budget.admit()
        answer = self._carry_out(request)
        self._budget.charge(answer.charge)
        return answer

    def _carry_out(self, request: Request) -> Answer:
        handler = _HANDLERS.get((request.method, request.target.kind))
        if handler is None:
            raise CosmosError(METHOD_NOT_ALLOWED, f"The resource does not take {request.method}.")
        if any(name in request.headers for name in _TRIGGER_HEADERS):
            raise unsupported("triggers")
        return handler(self._service, request)


def failure(error: CosmosError, activity: str = "") -> Answer:
    """The service's form of a refusal."""
    kind = error.kind
    message = f"{error.message}\r\nActivityId: {activity}, devstack"
    body = {"code": kind.code, "message": message, **error.details}
    headers = dict(error.headers)
    if kind.sub_status:
        headers["x-ms-substatus"] = str(kind.sub_status)
    return Answer(kind.status, dump_json(body), headers)
