"""The change feed, latest version: every item once at its last write, in the order of transactions, none of them split.

Read one physical partition at a time, or a part of it (a range of effective partition keys, or one partition key). A
continuation is the LSN of the last transaction that was returned, quoted: the ``etag`` of the answer,
``If-None-Match`` of the next request. Items of one transaction come in any order, and a page is longer than asked for
rather than end inside one. Deleted and expired items have vanished.
https://learn.microsoft.com/azure/cosmos-db/nosql/change-feed-modes
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from devstack.cosmos.protocol.errors import bad_request
from devstack.cosmos.resources.reading import reading
from devstack.cosmos.resources.scope import Scope, read_scope
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage import session
from devstack.cosmos.storage.documents import COLUMNS, StoredItem
from devstack.cosmos.storage.model import Container, Range
from devstack.cosmos.wire import charge
from devstack.cosmos.wire.messages import MAX_PAGE_BYTES, Answer, Request

LATEST_VERSION = "incremental feed"


@dataclass(frozen=True)
class _Start:
    """After the transaction ``lsn``; and only items written at ``timestamp`` (whole seconds) or later."""

    lsn: int
    timestamp: int = 0


def read(service: Service, request: Request) -> Answer:
    """One page of changes, or 304 when there are none. Either way with the ``etag`` to go on from.

    When the client names no part of a container of several physical partitions, the page is of the first that has
    changes, and the continuation says for each how far it was read.
    """
    newest = service.container(request)
    if request.headers.get("A-IM", "").lower() != LATEST_VERSION:
        raise bad_request(
            "devstack serves the change feed in latest version mode only (A-IM: Incremental Feed)."
        )
    run = service.store.connection
    scope = read_scope(newest, request)
    seen = reading(service, request, newest, scope.ranges)
    container, lasts = seen.container, seen.lsns
    starts = _starts(request, scope, lasts)
    reached = {part.id: max(lasts[part.id], starts[part.id].lsn) for part in scope.ranges}
    for index, part in enumerate(scope.ranges):
        items = _changes(run, container, scope, part, starts[part.id], request.page_size, service.now())
        if items:
            later = {other.id: starts[other.id].lsn for other in scope.ranges[index + 1 :]}
            reached |= {part.id: items[-1].lsn, **later}
            return _page(container, part, lasts, reached, items)
    return Answer(304, None, _headers(container, scope.ranges[-1], lasts, reached, 0))


def _page(
    container: Container,
    part: Range,
    lasts: Mapping[int, int],
    reached: dict[int, int],
    items: list[StoredItem],
) -> Answer:
    documents = ",".join(item.rendered(container, with_lsn=True) for item in items)
    body = f'{{"_rid":"{container.rid}","Documents":[{documents}],"_count":{len(items)}}}'
    headers = _headers(container, part, lasts, reached, len(items))
    return Answer(200, body, headers, charge.of_page(len(items), len(body)))


def _headers(
    container: Container, part: Range, lasts: Mapping[int, int], reached: dict[int, int], count: int
) -> dict[str, str]:
    pairs = ",".join(f"{number}:{lsn}" for number, lsn in reached.items())
    return {
        "etag": f'"{pairs if len(reached) > 1 else reached[part.id]}"',
        "x-ms-session-token": session.token(part, lasts[part.id]),
        "lsn": str(lasts[part.id]),
        "x-ms-item-count": str(count),
        "x-ms-documentdb-partitionkeyrangeid": str(part.id),
        "x-ms-alt-content-path": container.link,
        "x-ms-content-path": container.rid,
    }


def _starts(request: Request, scope: Scope, lasts: Mapping[int, int]) -> dict[int, _Start]:
    """Where to begin in each physical partition. Raises 400."""
    since = request.headers.get("If-Modified-Since")
    timestamp = _whole_second(since) if since else 0
    continuation = request.headers.get("If-None-Match", "0").strip()
    if continuation == "*":
        return {number: _Start(lsn, timestamp) for number, lsn in lasts.items()}
    known = _parse(continuation)
    return {part.id: _Start(_known(known, part), timestamp) for part in scope.ranges}


def _known(known: dict[int | None, int], part: Range) -> int:
    """What the continuation says of the partition, or of the one that it was split from."""
    lsns = [known[number] for number in (part.id, *part.parents, None) if number in known]
    return max(lsns, default=0)


def _parse(continuation: str) -> dict[int | None, int]:
    """``"12"``, or for several partitions ``"0:12,1:7"``; None stands for every partition."""
    found: dict[int | None, int] = {}
    for pair in continuation.strip('"').split(","):
        number, _, lsn = pair.rpartition(":")
        if not lsn.isdecimal() or not (number.isdecimal() or not number):
            raise bad_request(f"The continuation of the change feed is not valid: {continuation[:100]}")
        found[int(number) if number else None] = int(lsn)
    return found


def _whole_second(text: str) -> int:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError as error:
        raise bad_request(f"If-Modified-Since is not an HTTP date: {text[:100]}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def _changes(  # noqa: PLR0913, PLR0917 - the parts of one statement
    run: sqlite3.Connection,
    container: Container,
    scope: Scope,
    part: Range,
    start: _Start,
    most: int,
    now: int,
) -> list[StoredItem]:
    """At most ``most`` items and one page's bytes, but always whole transactions."""
    where, arguments = scope.sql()
    rows = run.execute(
        f"SELECT {COLUMNS} FROM {container.seen} WHERE range = ? AND lsn > ? AND timestamp >= ?"
        f" AND (expires IS NULL OR expires >= ?) AND {where} ORDER BY lsn, shuffle",
        (part.id, start.lsn, start.timestamp, now, *arguments),
    )
    items: list[StoredItem] = []
    size = 0
    for row in rows:
        item = StoredItem.from_row(row)
        full = len(items) >= most or size > MAX_PAGE_BYTES
        if full and item.lsn != items[-1].lsn:
            break
        items.append(item)
        size += len(item.text)
    return items
