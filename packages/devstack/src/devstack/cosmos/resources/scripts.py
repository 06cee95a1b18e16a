"""Stored procedures, triggers and user defined functions are kept and given back, but never run.

A request that would run one is refused: an execution, a request that names a trigger, a query that calls a function.
"""

import json
import sqlite3
from typing import Any

from devstack.cosmos.protocol.errors import conflict, no_such_resource, precondition_failed, unsupported
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage.documents import SYSTEM_PROPERTIES, check_id
from devstack.cosmos.storage.etag import matches, new_etag
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.rid import child_rid
from devstack.cosmos.wire.messages import Answer, Request

FEEDS = {"sprocs": "StoredProcedures", "triggers": "Triggers", "udfs": "UserDefinedFunctions"}
"""The name of the array in the answer to a list, by the resource type."""

_MARKERS = {"sprocs": 0x80, "triggers": 0x70, "udfs": 0x60}


def create(service: Service, request: Request) -> Answer:
    container = service.container(request)
    body = request.json()
    name, etag = check_id(body), new_etag(service.store.chance)
    try:
        with service.store.transaction() as run:
            run.execute(
                "INSERT INTO scripts (container, kind, id, etag, timestamp, body) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    container.number,
                    request.target.type,
                    name,
                    etag,
                    service.now(),
                    _kept(body),
                ),
            )
    except sqlite3.IntegrityError as error:
        raise conflict() from error
    return _answer(201, _find(service, container, request.target.type, name))


def read(service: Service, request: Request) -> Answer:
    return _answer(200, _named(service, request))


def replace(service: Service, request: Request) -> Answer:
    old = _named(service, request)
    _check(request, old)
    body = request.json()
    name, etag = check_id(body), new_etag(service.store.chance)
    container = service.container(request)
    with service.store.transaction() as run:
        run.execute(
            "UPDATE scripts SET id = ?, etag = ?, timestamp = ?, body = ? WHERE container = ? AND kind = ? AND id = ?",
            (
                name,
                etag,
                service.now(),
                _kept(body),
                container.number,
                request.target.type,
                old["id"],
            ),
        )
    return _answer(200, _find(service, container, request.target.type, name))


def delete(service: Service, request: Request) -> Answer:
    old = _named(service, request)
    _check(request, old)
    with service.store.transaction() as run:
        run.execute(
            "DELETE FROM scripts WHERE container = ? AND kind = ? AND id = ?",
            (service.container(request).number, request.target.type, old["id"]),
        )
    return Answer(204)


def execute(_service: Service, _request: Request) -> Answer:
    raise unsupported("the execution of stored procedures")


def documents(service: Service, request: Request) -> tuple[str, list[Json]]:
    """The parent's ``_rid`` and every script of the kind, as JSON."""
    container = service.container(request)
    rows = service.store.connection.execute(
        f"{_SELECT} WHERE container = ? AND kind = ? ORDER BY number", (container.number, request.target.type)
    )
    return container.rid, [_as_json(container, request.target.type, row) for row in rows]


_SELECT = "SELECT number, etag, timestamp, body FROM scripts"


def _kept(body: Json) -> str:
    return dump_json({name: value for name, value in body.items() if name not in SYSTEM_PROPERTIES})


def _named(service: Service, request: Request) -> Json:
    container = service.container(request)
    for script in documents(service, request)[1]:
        if request.target.item in (script["id"], script["_rid"]):
            return _find(service, container, request.target.type, script["id"])
    raise no_such_resource()


def _find(service: Service, container: Container, kind: str, name: str) -> Json:
    row = service.store.connection.execute(
        f"{_SELECT} WHERE container = ? AND kind = ? AND id = ?", (container.number, kind, name)
    ).fetchone()
    if row is None:
        raise no_such_resource()
    return _as_json(container, kind, row)


def _check(request: Request, script: Json) -> None:
    if_match = request.headers.get("If-Match")
    if if_match is not None and not matches(if_match, script["_etag"]):
        raise precondition_failed()


def _as_json(container: Container, kind: str, row: tuple[Any, ...]) -> Json:
    number, etag, timestamp, body = row
    rid = child_rid(container.rid, number, marker=_MARKERS[kind])
    system = {"_rid": rid, "_self": f"{container.self_link}{kind}/{rid}/", "_etag": etag, "_ts": timestamp}
    return {**json.loads(body), **system}


def _answer(status: int, script: Json) -> Answer:
    return Answer(status, dump_json(script), {"etag": script["_etag"]})
