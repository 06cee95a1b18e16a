"""One item at a time: create, upsert, read, replace, patch, delete. Each is a transaction of one operation."""

from collections.abc import Callable

from devstack.cosmos.items.patch import Patch
from devstack.cosmos.items.transaction import Condition, ItemTransaction, Outcome
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage import partition_key, session
from devstack.cosmos.storage.documents import check_size
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.rid import child_number
from devstack.cosmos.wire.messages import Answer, Request

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
    name = _item_id(service, request)
    return _write(service, request, lambda items, condition: items.replace(name, document, condition))


def patch(service: Service, request: Request) -> Answer:
    check_size(request.body)
    changes = Patch.from_body(request.json())
    name = _item_id(service, request)
    return _write(service, request, lambda items, condition: items.patch(name, changes, condition))


def delete(service: Service, request: Request) -> Answer:
    name = _item_id(service, request)
    return _write(service, request, lambda items, condition: items.delete(name, condition))


def delete_partition_key(service: Service, request: Request) -> Answer:
    """Delete all items of one partition key; here at once, by the service in the background."""
    container, items = _open(service, request)
    with service.store.transaction():
        items.delete_all()
    return Answer(200, None, item_headers(container, items))


def read(service: Service, request: Request) -> Answer:
    container, items = _open(service, request)
    session.check(
        service.store.connection, container, [items.part], request.headers.get("x-ms-session-token")
    )
    outcome = items.read(_item_id(service, request), _condition(request))
    return _answer(container, items, outcome)


def _write(service: Service, request: Request, operate: Operate) -> Answer:
    container, items = _open(service, request)
    with service.store.transaction():
        outcome = operate(items, _condition(request))
    minimal = request.headers.get("Prefer", "").lower() == "return=minimal"
    return _answer(container, items, outcome, minimal=minimal)


def _open(service: Service, request: Request) -> tuple[Container, ItemTransaction]:
    container = service.container(request)
    components = partition_key.of_header(container.key, request.headers.get("x-ms-documentdb-partitionkey"))
    return container, ItemTransaction(service.store.connection, container, components, service.now())


def _item_id(service: Service, request: Request) -> str:
    """The item's id; a link made of resource ids (``_self``) names the item by its ``_rid``."""
    container = service.container(request)
    name = request.target.item
    if request.target.container == container.id:
        return name
    row = service.store.connection.execute(
        f"SELECT id FROM {container.items} WHERE number = ?", (child_number(container.rid, name),)
    ).fetchone()
    return name if row is None else str(row[0])


def _condition(request: Request) -> Condition:
    return Condition(request.headers.get("If-Match"), request.headers.get("If-None-Match"))


def _answer(
    container: Container, items: ItemTransaction, outcome: Outcome, *, minimal: bool = False
) -> Answer:
    headers = item_headers(container, items)
    if outcome.item is None:
        return Answer(outcome.status, None, headers, outcome.charge)
    headers["etag"] = outcome.item.etag
    body = None if minimal else outcome.item.rendered(container)
    return Answer(outcome.status, body, headers, outcome.charge)


def item_headers(container: Container, items: ItemTransaction) -> dict[str, str]:
    """Where the items are and how far their partition is."""
    lsn = items.lsn
    return {
        "x-ms-session-token": session.token(items.part, lsn),
        "lsn": str(lsn),
        "x-ms-alt-content-path": container.link,
        "x-ms-content-path": container.rid,
        "x-ms-documentdb-partitionkeyrangeid": str(items.part.id),
    }
