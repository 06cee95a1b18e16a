"""A transactional batch happens whole or not at all: one SQLite transaction, rolled back by its first failure.

https://learn.microsoft.com/azure/cosmos-db/nosql/transactional-batch: at most 100 operations and 2 MB in one logical
partition. All succeed: 200. One fails: 207, with its own status at its place and 424 at all others.
"""

import functools
import logging
from typing import Any

from devstack.cosmos.items.patch import Patch
from devstack.cosmos.items.single import item_headers
from devstack.cosmos.items.transaction import Condition, ItemTransaction, Outcome
from devstack.cosmos.protocol.errors import (
    FAILED_DEPENDENCY,
    TOO_LARGE,
    CosmosError,
    bad_request,
    unsupported,
)
from devstack.cosmos.protocol.json_text import Json, dump_json, parse_json
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage import partition_key
from devstack.cosmos.storage.model import Container
from devstack.cosmos.wire.messages import Answer, Request

MAX_OPERATIONS = 100
MAX_BYTES = 2 * 1024 * 1024

HYBRID_ROW = b"\x81"
"""A body that begins so is HybridRow, version 1: what the .NET SDK makes of TransactionalBatch and of bulk."""


_log = logging.getLogger(__name__)


@functools.cache
def _warn_once(text: str) -> None:
    """In the log too: of a refused bulk the .NET SDK shows its caller the status, and an empty reason."""
    _log.warning(text)


class _OperationFailed(Exception):
    def __init__(self, index: int, error: CosmosError) -> None:
        super().__init__(str(error))
        self.index = index
        self.error = error


def execute(service: Service, request: Request) -> Answer:
    container = service.container(request)
    operations = _operations(request)
    components = partition_key.of_header(container.key, request.headers.get("x-ms-documentdb-partitionkey"))
    items = ItemTransaction(service.store, container, components, service.now())
    try:
        with service.store.transaction():
            outcomes = [_perform(items, index, operation) for index, operation in enumerate(operations)]
    except _OperationFailed as failed:
        items = ItemTransaction(service.store, container, components, service.now())
        body = _failure(len(operations), failed)
        return Answer(
            207, body, item_headers(container, items.part, items.lsn), charge=float(len(operations))
        )
    body = "[" + ",".join(_success(container, outcome) for outcome in outcomes) + "]"
    charge = round(sum(outcome.charge for outcome in outcomes), 2)
    return Answer(200, body, item_headers(container, items.part, items.lsn), charge)


def _operations(request: Request) -> list[Json]:
    if len(request.body) > MAX_BYTES:
        raise CosmosError(TOO_LARGE, "Request size is too large: a batch may have at most 2 MB.")
    if request.body.startswith(HYBRID_ROW):
        refused = unsupported(
            "batches in HybridRow, the binary form in which the .NET SDK sends TransactionalBatch and bulk operations."
            " Write item by item without AllowBulkExecution, or use an SDK that sends batches as JSON (Python, Java,"
            " JavaScript)"
        )
        _warn_once(f"a request was refused: {refused}")
        raise refused
    if not request.flag("x-ms-cosmos-batch-atomic"):
        raise unsupported("batches that are not atomic")
    operations = parse_json(request.body)
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("The body of a batch must be an array of operations.")
    if not operations:
        raise bad_request("Batch request has no operations.")
    if len(operations) > MAX_OPERATIONS:
        raise bad_request(
            f"Batch request has more operations than what is supported. Actual: {len(operations)},"
            f" most: {MAX_OPERATIONS}."
        )
    return operations


def _perform(items: ItemTransaction, index: int, operation: Json) -> Outcome:
    try:
        return _operate(items, operation)
    except CosmosError as error:
        raise _OperationFailed(index, error) from error


def _operate(items: ItemTransaction, operation: Json) -> Outcome:
    condition = Condition(_text(operation, "ifMatch"), _text(operation, "ifNoneMatch"))
    match operation.get("operationType"):
        case "Create":
            return items.create(_document(operation), condition)
        case "Upsert":
            return items.upsert(_document(operation), condition)
        case "Replace":
            return items.replace(_id(operation), _document(operation), condition)
        case "Patch":
            return items.patch(_id(operation), Patch.from_body(_document(operation)), condition)
        case "Delete":
            return items.delete(_id(operation), condition)
        case "Read":
            return items.read(_id(operation), condition)
        case other:
            raise bad_request(f"The operation type {other!r} of a batch is not valid.")


def _document(operation: Json) -> Json:
    body = operation.get("resourceBody")
    if not isinstance(body, dict):
        raise bad_request("The operation of a batch has no resourceBody.")
    return body


def _id(operation: Json) -> str:
    value = _text(operation, "id")
    if not value:
        raise bad_request("The operation of a batch has no id.")
    return value


def _text(operation: Json, name: str) -> str | None:
    value = operation.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"The {name} of a batch's operation must be a string.")
    return value


def _success(container: Container, outcome: Outcome) -> str:
    head = f'{{"statusCode":{outcome.status},"requestCharge":{outcome.charge}'
    if outcome.item is None:
        return head + "}"
    item = outcome.item
    return f'{head},"eTag":{dump_json(item.etag)},"resourceBody":{item.rendered(container)}}}'


def _failure(count: int, failed: _OperationFailed) -> str:
    dependent: dict[str, Any] = {"statusCode": FAILED_DEPENDENCY.status, "requestCharge": 0}
    results = [dict(dependent) for _ in range(count)]
    kind = failed.error.kind
    results[failed.index] = {"statusCode": kind.status, "requestCharge": 1.0, "message": failed.error.message}
    if kind.sub_status:
        results[failed.index]["subStatusCode"] = kind.sub_status
    return dump_json(results)
