"""One item at a time: create, upsert, read, replace, patch, delete. Each is a transaction of one operation.

A write is answered from the newest state and a read from that of its replica; either way the answer's session token
says which, that of a 404, 409 or 412 too.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping

from devstack.cosmos.items.patch import Patch
from devstack.cosmos.items.transaction import Condition, ItemTransaction, Outcome
from devstack.cosmos.protocol.errors import CosmosError
from devstack.cosmos.protocol.json_text import parse_json
from devstack.cosmos.resources.reading import reading
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage import partition_key, session
from devstack.cosmos.storage.documents import check_size
from devstack.cosmos.storage.epk import Components
from devstack.cosmos.storage.model import Container, Range
from devstack.cosmos.storage.rid import child_number
from devstack.cosmos.wire.messages import Answer, Request

_ABOUT_THE_STATE = (404, 409, 412)

Operate = Callable[[ItemTransaction, Condition], Outcome]


def create(service: Service, request: Request) -> Answer:
    check_size(request.body)
    document = request.json()
    if request.flag("x-ms-documentdb-is-upsert"):
        return _write(service, request, lambda items, condition: items.upsert(document, condition))
    return _write(service, request, lambda items, condition: items.create(document, condition))


def replace(service: Service, request: Request) -> Answer:
    check_size(request.body)
    document = request.json()
    name = _item_id(service.store.connection, service.container(request), request)
    return _write(service, request, lambda items, condition: items.replace(name, document, condition))


def patch(service: Service, request: Request) -> Answer:
    check_size(request.body)
    changes = Patch.from_body(parse_json(request.body))
    name = _item_id(service.store.connection, service.container(request), request)
    return _write(service, request, lambda items, condition: items.patch(name, changes, condition))


def delete(service: Service, request: Request) -> Answer:
    name = _item_id(service.store.connection, service.container(request), request)
    return _write(service, request, lambda items, condition: items.delete(name, condition))


def delete_partition_key(service: Service, request: Request) -> Answer:
    """Delete all items of one partition key; here at once, by the service in the background."""
    container, items = _open(service, request)
    with service.store.transaction():
        items.delete_all()
    return Answer(200, None, item_headers(container, items.part, items.lsn))


def read(service: Service, request: Request) -> Answer:
    container = service.container(request)
    components = _components(container, request)
    part = container.range_of(container.key.effective(components))
    seen = reading(service, request, container, [part])
    run = service.store.connection
    items = ItemTransaction(service.store, seen.container, components, service.now())
    headers = item_headers(container, part, seen.lsns[part.id])
    with _with_state_headers(headers):
        outcome = items.read(_item_id(run, seen.container, request), _condition(request))
    return _answer(container, headers, outcome)


def _write(service: Service, request: Request, operate: Operate) -> Answer:
    container, items = _open(service, request)
    with _with_state_headers(item_headers(container, items.part, items.lsn)), service.store.transaction():
        outcome = operate(items, _condition(request))
    minimal = request.headers.get("Prefer", "").lower() == "return=minimal"
    return _answer(container, item_headers(container, items.part, items.lsn), outcome, minimal=minimal)


def _open(service: Service, request: Request) -> tuple[Container, ItemTransaction]:
    container = service.container(request)
    components = _components(container, request)
    return container, ItemTransaction(service.store, container, components, service.now())


def _components(container: Container, request: Request) -> Components:
    return partition_key.of_header(container.key, request.headers.get("x-ms-documentdb-partitionkey"))


@contextlib.contextmanager
def _with_state_headers(headers: Mapping[str, str]) -> Iterator[None]:
    """Add the state's headers to a refusal that is about the state."""
    try:
        yield
    except CosmosError as error:
        if error.kind.status in _ABOUT_THE_STATE:
            error.headers = {**headers, **error.headers}
        raise


def _item_id(run: sqlite3.Connection, container: Container, request: Request) -> str:
    """The item's id; a link made of resource ids (``_self``) names the item by its ``_rid``."""
    name = request.target.item
    if request.target.container == container.id:
        return name
    row = run.execute(
        f"SELECT id FROM {container.seen} WHERE number = ?", (child_number(container.rid, name),)
    ).fetchone()
    return name if row is None else str(row[0])


def _condition(request: Request) -> Condition:
    return Condition(request.headers.get("If-Match"), request.headers.get("If-None-Match"))


def _answer(
    container: Container, headers: dict[str, str], outcome: Outcome, *, minimal: bool = False
) -> Answer:
    if outcome.item is None:
        return Answer(outcome.status, None, headers, outcome.charge)
    headers["etag"] = outcome.item.etag
    body = None if minimal else outcome.item.rendered(container)
    return Answer(outcome.status, body, headers, outcome.charge)


def item_headers(container: Container, part: Range, lsn: int) -> dict[str, str]:
    """Where the items are and how far their partition is."""
    return {
        "x-ms-session-token": session.token(part, lsn),
        "lsn": str(lsn),
        "x-ms-alt-content-path": container.link,
        "x-ms-content-path": container.rid,
        "x-ms-documentdb-partitionkeyrangeid": str(part.id),
    }
