"""Databases: a name, what was paid for it, and the containers in it."""

from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.resources import offers
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage.documents import MAX_NAME_BYTES, check_id
from devstack.cosmos.storage.model import Database
from devstack.cosmos.wire.messages import Answer, Request


def create(service: Service, request: Request) -> Answer:
    name = check_id(request.json(), MAX_NAME_BYTES)
    throughput = offers.Throughput.of_request(request)
    with service.store.transaction() as run:
        rid = service.catalogue.add_database(run, name, service.now())
        if throughput.given:
            offers.add(service, run, rid, f"dbs/{rid}/", throughput)
    service.catalogue.reload()
    return _answer(201, service.catalogue.database(name))


def read(service: Service, request: Request) -> Answer:
    return _answer(200, service.catalogue.database(request.target.database))


def delete(service: Service, request: Request) -> Answer:
    """The containers in it go with it."""
    database = service.catalogue.database(request.target.database)
    with service.store.transaction() as run:
        service.catalogue.remove_database(run, database, request.headers.get("If-Match"))
    service.catalogue.reload()
    return Answer(204)


def documents(service: Service, _request: Request) -> tuple[str, list[Json]]:
    """The parent's ``_rid``, of which there is none, and every database, as JSON."""
    return "", [_as_json(database) for database in service.catalogue.databases()]


def _as_json(database: Database) -> Json:
    return {
        "id": database.id,
        "_rid": database.rid,
        "_self": database.self_link,
        "_etag": database.etag,
        "_colls": "colls/",
        "_users": "users/",
        "_ts": database.timestamp,
    }


def _answer(status: int, database: Database) -> Answer:
    return Answer(status, dump_json(_as_json(database)), {"etag": database.etag})
