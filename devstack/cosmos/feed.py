"""The change feed, latest version: every item once at its last write, in the order of transactions, none of them split.

Read one physical partition at a time, or a part of it (a range of effective partition keys, or one partition key). A
continuation is the LSN of the last transaction that was returned, quoted: the ``etag`` of the answer, ``If-None-Match`` of
the next request. Items of one transaction come in any order, and a page is longer than asked for rather than end inside
one. Deleted and expired items have vanished. https://learn.microsoft.com/azure/cosmos-db/nosql/change-feed-modes
"""

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from devstack.cosmos import charge, session
from devstack.cosmos.documents import COLUMNS, StoredItem
from devstack.cosmos.errors import bad_request
from devstack.cosmos.model import Container
from devstack.cosmos.scope import Scope, read_scope
from devstack.cosmos.service import Service
from devstack.cosmos.wire import MAX_PAGE_BYTES, Answer, Request

LATEST_VERSION = "incremental feed"


@dataclass(frozen=True)
class _Start:
    """After the transaction ``lsn``; and only items written at ``timestamp`` (whole seconds) or later."""

    lsn: int
    timestamp: int = 0


def read(service: Service, request: Request) -> Answer:
    """One page of changes, or 304 when there are none. Either way with the ``etag`` to go on from."""
    container = service.container(request)
    if request.headers.get("A-IM", "").lower() != LATEST_VERSION:
        raise bad_request(
            "devstack serves the change feed in latest version mode only (A-IM: Incremental Feed)."
        )
    run = service.store.connection
    scope = read_scope(container, request).single_range()
    part = scope.ranges[0]
    session.check(run, container, [part], request.headers.get("x-ms-session-token"))
    last = session.current_lsn(run, container, part)
    start = _start(request, last)
    items = _changes(run, container, scope, start, request.page_size, service.now())
    reached = items[-1].lsn if items else max(last, start.lsn)
    headers = {
        "etag": f'"{reached}"',
        "x-ms-session-token": session.token(part, last),
        "lsn": str(last),
        "x-ms-item-count": str(len(items)),
        "x-ms-documentdb-partitionkeyrangeid": str(part.id),
    }
    if not items:
        return Answer(304, None, headers)
    documents = ",".join(item.rendered(container, with_lsn=True) for item in items)
    body = f'{{"_rid":"{container.rid}","Documents":[{documents}],"_count":{len(items)}}}'
    return Answer(200, body, headers, charge.of_page(len(items), len(body)))


def _start(request: Request, last: int) -> _Start:
    since = request.headers.get("If-Modified-Since")
    timestamp = _whole_second(since) if since else 0
    continuation = request.headers.get("If-None-Match")
    if continuation is None:
        return _Start(0, timestamp)
    if continuation.strip() == "*":
        return _Start(last, timestamp)
    text = continuation.strip().strip('"')
    if not text.isdecimal():
        raise bad_request(f"The continuation of the change feed is not valid: {continuation[:100]}")
    return _Start(int(text), timestamp)


def _whole_second(text: str) -> int:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError as error:
        raise bad_request(f"If-Modified-Since is not an HTTP date: {text[:100]}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def _changes(
    run: sqlite3.Connection, container: Container, scope: Scope, start: _Start, most: int, now: int
) -> list[StoredItem]:
    """At most ``most`` items and one page's bytes, but always whole transactions."""
    where, arguments = scope.sql()
    rows = run.execute(
        f"SELECT {COLUMNS} FROM {container.items} WHERE range = ? AND lsn > ? AND timestamp >= ?"
        f" AND (expires IS NULL OR expires >= ?) AND {where} ORDER BY lsn, shuffle",
        (scope.ranges[0].id, start.lsn, start.timestamp, now, *arguments),
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
