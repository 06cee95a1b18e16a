"""One request in, one answer out: authorised, routed, carried out, and every failure turned into the service's own form."""

import logging
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from devstack.cosmos import account, batch, containers, databases, feed, items, offers, partitions, queries
from devstack.cosmos.auth import Authorizer
from devstack.cosmos.errors import METHOD_NOT_ALLOWED, SERVICE_UNAVAILABLE, CosmosError
from devstack.cosmos.routes import Kind, parse_path
from devstack.cosmos.service import Service
from devstack.cosmos.wire import Answer, Request, dump_json

Handler = Callable[[Service, Request], Answer]

_log = logging.getLogger(__name__)


def _is_query(request: Request) -> bool:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return request.flag("x-ms-documentdb-isquery") or kind == "application/query+json"


def _post_items(service: Service, request: Request) -> Answer:
    if request.flag("x-ms-cosmos-is-query-plan-request"):
        return queries.plan(service, request)
    if request.flag("x-ms-cosmos-is-batch-request"):
        return batch.execute(service, request)
    if _is_query(request):
        return queries.query_items(service, request)
    return items.create(service, request)


def _get_items(service: Service, request: Request) -> Answer:
    return (feed.read if "A-IM" in request.headers else queries.list_items)(service, request)


def _post_databases(service: Service, request: Request) -> Answer:
    if _is_query(request):
        return queries.query_resources(databases.documents(service, request), request, "Databases")
    return databases.create(service, request)


def _post_containers(service: Service, request: Request) -> Answer:
    if _is_query(request):
        return queries.query_resources(containers.documents(service, request), request, "DocumentCollections")
    return containers.create(service, request)


def _query_offers(service: Service, request: Request) -> Answer:
    return queries.query_resources(offers.documents(service, request), request, "Offers")


_HANDLERS: Final[dict[tuple[str, Kind], Handler]] = {
    ("GET", Kind.ACCOUNT): account.read,
    ("POST", Kind.DATABASES): _post_databases,
    ("GET", Kind.DATABASES): lambda service, request: queries.list_resources(
        databases.documents(service, request), "Databases"
    ),
    ("GET", Kind.DATABASE): databases.read,
    ("DELETE", Kind.DATABASE): databases.delete,
    ("POST", Kind.CONTAINERS): _post_containers,
    ("GET", Kind.CONTAINERS): lambda service, request: queries.list_resources(
        containers.documents(service, request), "DocumentCollections"
    ),
    ("GET", Kind.CONTAINER): containers.read,
    ("PUT", Kind.CONTAINER): containers.replace,
    ("DELETE", Kind.CONTAINER): containers.delete,
    ("GET", Kind.RANGES): partitions.read,
    ("POST", Kind.ITEMS): _post_items,
    ("GET", Kind.ITEMS): _get_items,
    ("GET", Kind.ITEM): items.read,
    ("PUT", Kind.ITEM): items.replace,
    ("PATCH", Kind.ITEM): items.patch,
    ("DELETE", Kind.ITEM): items.delete,
    ("POST", Kind.OFFERS): _query_offers,
    ("GET", Kind.OFFERS): lambda service, request: queries.list_resources(
        offers.documents(service, request), "Offers"
    ),
    ("GET", Kind.OFFER): offers.read,
    ("PUT", Kind.OFFER): offers.replace,
}


class Dispatcher:
    """Serves requests one after the other; ``authorizer`` decides who may ask at all."""

    def __init__(self, service: Service, authorizer: Authorizer) -> None:
        self.service = service
        self._authorizer = authorizer

    def serve(self, method: str, raw_path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Never raises: what goes wrong becomes an answer."""
        activity = headers.get("x-ms-activity-id") or str(uuid.uuid4())
        try:
            request = Request(method, parse_path(raw_path), headers, body)
            self._authorizer.check(request)
            answer = self.carry_out(request)
        except CosmosError as error:
            answer = failure(error, activity)
        except sqlite3.Error as error:
            _log.exception("the store failed")
            answer = failure(CosmosError(SERVICE_UNAVAILABLE, f"The store failed: {error}"), activity)
        answer.headers["x-ms-activity-id"] = activity
        return answer

    def carry_out(self, request: Request) -> Answer:
        handler = _HANDLERS.get((request.method, request.target.kind))
        if handler is None:
            raise CosmosError(METHOD_NOT_ALLOWED, f"The resource does not take {request.method}.")
        return handler(self.service, request)


def failure(error: CosmosError, activity: str) -> Answer:
    """The service's form of a refusal."""
    kind = error.kind
    body = {"code": kind.code, "message": f"{error.message}\r\nActivityId: {activity}, devstack"}
    headers = dict(error.headers)
    if kind.sub_status:
        headers["x-ms-substatus"] = str(kind.sub_status)
    return Answer(kind.status, dump_json(body), headers)
