"""The physical partitions cover all effective partition keys without gap or overlap, before and after a split.

A split makes two children of one partition. They keep its items with their LSNs and go on counting from its last one,
so a continuation of the parent is good for both.
"""

import json
import sqlite3
from dataclasses import dataclass

from devstack.cosmos.protocol.errors import PARTITION_GONE, CosmosError, bad_request
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage.epk import midpoint
from devstack.cosmos.storage.model import Container, Range
from devstack.cosmos.storage.rid import child_rid
from devstack.cosmos.wire.messages import Answer, Request

_RANGE_MARKER = 0x50


@dataclass(frozen=True)
class Split:
    parent: Range
    children: tuple[Range, Range]


def read(service: Service, request: Request) -> Answer:
    """The partitions that changed since the ``etag`` that the client has, all of them without one; 304 for none."""
    container = service.container(request)
    etag = f'"{container.ranges_version}"'
    known = request.headers.get("If-None-Match", "").strip().strip('"')
    if known == str(container.ranges_version):
        return Answer(304, None, {"etag": etag, "x-ms-item-count": "0"})
    since = int(known) if known.isdecimal() else 0
    rows = service.store.connection.execute(
        "SELECT id, lsn FROM ranges WHERE container = ? AND online AND version > ?", (container.number, since)
    )
    lsns = dict(rows.fetchall())
    ranges = [_as_json(container, part, lsns[part.id]) for part in container.ranges if part.id in lsns]
    body = {"_rid": container.rid, "PartitionKeyRanges": ranges, "_count": len(ranges)}
    return Answer(200, dump_json(body), {"etag": etag, "x-ms-item-count": str(len(ranges))})


def _as_json(container: Container, part: Range, lsn: int) -> Json:
    rid = child_rid(container.rid, part.id + 2, marker=_RANGE_MARKER)
    return {
        "_rid": rid,
        "id": str(part.id),
        "_etag": f'"{container.rid}-{part.id}"',
        "minInclusive": part.minimum,
        "maxExclusive": part.maximum,
        "ridPrefix": part.id,
        "_self": f"{container.self_link}pkranges/{rid}/",
        "throughputFraction": 1 / len(container.ranges),
        "status": "online",
        "parents": [str(parent) for parent in part.parents],
        "_ts": container.timestamp,
        "_lsn": lsn,
    }


def split(service: Service, container: Container, range_id: int) -> Split:
    """Cut one partition in two in the middle of its range. Raises 410 for a partition that is not there."""
    parent = container.range_by_id(range_id)
    if parent is None:
        raise CosmosError(PARTITION_GONE, f"The container has no partition key range {range_id}.")
    middle = midpoint(parent.minimum, parent.maximum, kind=container.key.kind, version=container.key.version)
    if middle is None:
        raise bad_request("The partition key range is too small to be split.")
    with service.store.transaction() as run:
        first = _next_id(run, container)
        parents = (*parent.parents, parent.id)
        children = (
            Range(first, parent.minimum, middle, parents),
            Range(first + 1, middle, parent.maximum, parents),
        )
        _replace(run, container, parent, children)
    service.catalogue.reload()
    return Split(parent, children)


def scale_out(service: Service, container: Container, wanted: int) -> None:
    """Split, the widest partition first, until there are as many as the throughput needs: there is no way back."""
    while len(container.ranges) < wanted:
        widest = min(container.ranges, key=lambda part: (len(part.parents), part.minimum))
        split(service, container, widest.id)
        container = service.catalogue.container(container.database.id, container.id)


def _next_id(run: sqlite3.Connection, container: Container) -> int:
    number: int = run.execute(
        "SELECT max(id) FROM ranges WHERE container = ?", (container.number,)
    ).fetchone()[0]
    return number + 1


def _replace(
    run: sqlite3.Connection, container: Container, parent: Range, children: tuple[Range, Range]
) -> None:
    version = container.ranges_version + 1
    run.execute("UPDATE containers SET ranges_version = ? WHERE number = ?", (version, container.number))
    run.execute("UPDATE ranges SET online = 0 WHERE container = ? AND id = ?", (container.number, parent.id))
    for child in children:
        run.execute(
            "INSERT INTO ranges (container, id, minimum, maximum, parents, lsn, online, version)"
            " SELECT container, ?, ?, ?, ?, lsn, 1, ? FROM ranges WHERE container = ? AND id = ?",
            (
                child.id,
                child.minimum,
                child.maximum,
                json.dumps(child.parents),
                version,
                container.number,
                parent.id,
            ),
        )
        run.execute(
            f"UPDATE {container.items} SET range = ? WHERE range = ? AND epk >= ? AND epk < ?",
            (child.id, parent.id, child.minimum, child.maximum),
        )
