"""A container's settings are checked before they are stored, and returned as they were given, defaults filled in."""

from typing import Any

from devstack.cosmos.protocol.errors import bad_request, no_such_owner, unsupported
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.resources import offers
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage import ttl
from devstack.cosmos.storage.documents import MAX_NAME_BYTES, check_id
from devstack.cosmos.storage.model import Container, Database
from devstack.cosmos.storage.partition_key import parse_definition
from devstack.cosmos.wire.messages import Answer, Request

DEFAULT_INDEXING: Json = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}
_CONFLICT_RESOLUTION: Json = {
    "mode": "LastWriterWins",
    "conflictResolutionPath": "/_ts",
    "conflictResolutionProcedure": "",
}
_SYSTEM = (
    "_rid",
    "_self",
    "_etag",
    "_ts",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
    "statistics",
)
_NOT_SERVED = {
    "computedProperties": "computed properties",
    "vectorEmbeddingPolicy": "vector search",
    "fullTextPolicy": "full text search",
    "changeFeedPolicy": "the change feed of all versions and deletes",
    "analyticalStorageTtl": "the analytical store",
    "clientEncryptionPolicy": "client encryption",
    "materializedViewDefinition": "materialized views",
}


def create(service: Service, request: Request) -> Answer:
    database = _owner(service, request)
    body = request.json()
    name = check_id(body, MAX_NAME_BYTES)
    properties = _properties(body)
    key = parse_definition(properties)
    throughput = offers.Throughput.of_request(request)
    partitions = service.options.partitions or throughput.partitions
    with service.store.transaction() as run:
        rid = service.catalogue.add_container(
            run, database, name, properties, key=key, partitions=partitions, timestamp=service.now()
        )
        if throughput.given or not offers.exists(run, database.rid):
            offers.add(service, run, rid, f"{database.self_link}colls/{rid}/", throughput)
    service.catalogue.reload()
    return _answer(201, service.catalogue.container(database.id, name))


def read(service: Service, request: Request) -> Answer:
    container = service.catalogue.container(request.target.database, request.target.container)
    answer = _answer(200, container)
    if request.flag("x-ms-documentdb-populatepartitionstatistics"):
        answer.body = dump_json({**as_json(container), "statistics": _statistics(service, container)})
    if request.flag("x-ms-documentdb-populatequotainfo"):
        answer.headers["x-ms-resource-usage"] = f"documentsCount={_count(service, container)};"
        answer.headers["x-ms-documentdb-collection-index-transformation-progress"] = "100"
    return answer


def _statistics(service: Service, container: Container) -> list[Json]:
    run = service.store.connection
    return [
        {
            "id": str(part.id),
            "documentCount": run.execute(
                f"SELECT count(*) FROM {container.items} WHERE range = ?", (part.id,)
            ).fetchone()[0],
            "partitionKeys": [],
        }
        for part in container.ranges
    ]


def _count(service: Service, container: Container) -> int:
    number: int = service.store.connection.execute(f"SELECT count(*) FROM {container.items}").fetchone()[0]
    return number


def replace(service: Service, request: Request) -> Answer:
    old = service.catalogue.container(request.target.database, request.target.container)
    body = request.json()
    if check_id(body) != old.id:
        raise bad_request("The id of a container cannot be changed.")
    properties = _properties(body)
    if parse_definition(properties) != old.key:
        raise bad_request("The partition key of a container cannot be changed.")
    default = ttl.container_ttl(properties)
    with service.store.transaction() as run:
        service.catalogue.change_container(
            run, old, properties, if_match=request.headers.get("If-Match"), timestamp=service.now()
        )
        if default != old.default_ttl:
            ttl.recompute(run, old, default)
    service.catalogue.reload()
    return _answer(200, service.catalogue.container(old.database.id, old.id))


def delete(service: Service, request: Request) -> Answer:
    old = service.catalogue.container(request.target.database, request.target.container)
    with service.store.transaction() as run:
        service.catalogue.remove_container(run, old, request.headers.get("If-Match"))
    service.catalogue.reload()
    return Answer(204)


def documents(service: Service, request: Request) -> tuple[str, list[Json]]:
    """The parent's ``_rid`` and every container of the database, as JSON."""
    database = _owner(service, request)
    return database.rid, [as_json(container) for container in service.catalogue.containers(database)]


def _owner(service: Service, request: Request) -> Database:
    if request.target.database not in {name for d in service.catalogue.databases() for name in (d.id, d.rid)}:
        raise no_such_owner()
    return service.catalogue.database(request.target.database)


def _properties(body: Json) -> Json:
    """What is stored of a container's body. Raises 400."""
    for name, what in _NOT_SERVED.items():
        if body.get(name):
            raise unsupported(what)
    if (body.get("uniqueKeyPolicy") or {}).get("uniqueKeys"):
        raise unsupported("unique keys")
    properties = {name: value for name, value in body.items() if name not in _SYSTEM and name != "id"}
    default = ttl.container_ttl(properties)
    if default is None:
        properties.pop("defaultTtl", None)
    properties["indexingPolicy"] = _indexing(properties.get("indexingPolicy"))
    properties.setdefault("conflictResolutionPolicy", _CONFLICT_RESOLUTION)
    properties.setdefault("geospatialConfig", {"type": "Geography"})
    properties["partitionKey"] = {"kind": "Hash", "version": 1} | (body.get("partitionKey") or {})
    return properties


def _indexing(policy: Any) -> Json:
    if policy is None:
        return DEFAULT_INDEXING
    if not isinstance(policy, dict):
        raise bad_request("The indexing policy must be an object.")
    mode = str(policy.get("indexingMode", "consistent")).lower()
    if mode not in ("consistent", "none", "lazy"):
        raise bad_request(f"The indexing mode {mode!r} is not valid.")
    filled = {**policy, "indexingMode": mode, "automatic": policy.get("automatic", mode != "none")}
    if mode != "none":
        # What kind of index a path has is no longer the client's choice: the service takes it and drops it.
        excluded = policy.get("excludedPaths") or []
        nothing_else = [] if _has_root(excluded) else DEFAULT_INDEXING["includedPaths"]
        included = policy.get("includedPaths") or nothing_else
        if not _has_root([*included, *excluded]):
            raise bad_request(
                "The special mandatory indexing path '/' is not provided in any of the path type sets: include or"
                " exclude '/*'."
            )
        filled["includedPaths"] = [{"path": part["path"]} for part in included]
        always = [part for part in DEFAULT_INDEXING["excludedPaths"] if part not in excluded]
        filled["excludedPaths"] = [*excluded, *always]
    return filled


def _has_root(paths: list[Json]) -> bool:
    """``/`` is the old way to write it."""
    return any(part["path"] in ("/*", "/") for part in paths)


def as_json(container: Container) -> Json:
    return {
        "id": container.id,
        **container.properties,
        "_rid": container.rid,
        "_ts": container.timestamp,
        "_self": container.self_link,
        "_etag": container.etag,
        "_docs": "docs/",
        "_sprocs": "sprocs/",
        "_triggers": "triggers/",
        "_udfs": "udfs/",
        "_conflicts": "conflicts/",
    }


def _answer(status: int, container: Container) -> Answer:
    headers = {"etag": container.etag, "x-ms-alt-content-path": container.database.link}
    return Answer(status, dump_json(as_json(container)), headers)
