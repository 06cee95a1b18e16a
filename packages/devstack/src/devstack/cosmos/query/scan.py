"""Reads the rows that may match, in the order of the query, from where the last page ended.

Without ORDER BY the order is that of creation, physical partition by physical partition. With ORDER BY an index on
the sort keys is made the first time, so that a page costs a page and not the container. As in the service, an order
by several properties needs a composite index in the container's indexing policy.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from devstack.cosmos.protocol.errors import bad_request
from devstack.cosmos.protocol.json_text import Json
from devstack.cosmos.query import tree
from devstack.cosmos.query.continuation import Keys, Position
from devstack.cosmos.query.pushdown import Filter, Path, sort_columns
from devstack.cosmos.resources.scope import Scope
from devstack.cosmos.storage.documents import render
from devstack.cosmos.storage.model import Container, Range

MAX_SORT_INDEXES = 8
"""Of one container; beyond, SQLite sorts."""


@dataclass(frozen=True)
class Candidate:
    """A row that may match; ``keys`` are its sort keys."""

    number: int
    keys: Keys
    text: str

    def document(self) -> Json:
        value: Json = json.loads(self.text)
        return value


@dataclass(frozen=True)
class Order:
    """``columns`` are pairs of SQL for the type's rank and for the value, ``descending`` one for each pair."""

    columns: tuple[tuple[str, str], ...]
    descending: tuple[bool, ...]

    @classmethod
    def of_query(cls, query: tree.Query, container: Container) -> "Order":
        """Raises 400 for keys that the service could not serve from an index."""
        paths = [tree.path_of(key.value, query.root) for key in query.order_by]
        known = [path for path in paths if path]
        if len(known) != len(paths):
            raise bad_request("ORDER BY item expression could not be mapped to a document path.")
        if len(known) > 1:
            _check_composite_index(container, known, [key.descending for key in query.order_by])
        if len(known) == 1 and not _is_indexed(container, known[0]):
            raise bad_request("The index path corresponding to the specified order-by item is excluded.")
        return cls(
            tuple(sort_columns(path) for path in known), tuple(key.descending for key in query.order_by)
        )

    @property
    def terms(self) -> list[tuple[str, bool]]:
        """Every SQL term of ORDER BY; the last, the item's number, makes the order total."""
        terms = [
            (column, down)
            for pair, down in zip(self.columns, self.descending, strict=True)
            for column in pair
        ]
        return [*terms, ("number", bool(self.descending) and self.descending[-1])]

    def sql(self) -> str:
        return ", ".join(f"{column} DESC" if down else column for column, down in self.terms)

    def after(self, keys: Keys, number: int) -> Filter:
        """The rows that come later than one with these keys."""
        terms, values = self.terms, (*keys, number)
        if len(terms) != len(values):
            raise bad_request("Invalid Continuation Token: it does not fit the query's ORDER BY.")
        directions = {down for _, down in terms}
        if len(directions) == 1:  # one comparison of rows, which an index can serve
            left = ", ".join(column for column, _ in terms)
            marks = ", ".join("?" * len(values))
            return Filter(f"({left}) {'<' if directions.pop() else '>'} ({marks})", values)
        parts: list[str] = []
        arguments: list[Any] = []
        for index, (column, down) in enumerate(terms):
            same = [f"{earlier} = ?" for earlier, _ in terms[:index]]
            parts.append("(" + " AND ".join([*same, f"{column} {'<' if down else '>'} ?"]) + ")")
            arguments += values[: index + 1]
        return Filter("(" + " OR ".join(parts) + ")", tuple(arguments))


def _is_indexed(container: Container, path: Path) -> bool:
    """Of an included and an excluded path the more precise one wins; ``/a/?`` is more precise than ``/a/*``.

    ``id`` and ``_ts`` are indexed whatever the paths are, unless nothing is.
    https://learn.microsoft.com/azure/cosmos-db/index-policy#includeexclude-strategy
    """
    policy = container.properties["indexingPolicy"]
    if policy["indexingMode"] == "none":
        return False
    if path in (("id",), ("_ts",)):
        return True
    included, excluded = (
        max((_precision(part["path"], path) for part in policy.get(which, [])), default=-1)
        for which in ("includedPaths", "excludedPaths")
    )
    return included > excluded


def _precision(pattern: str, path: Path) -> int:
    """How many names of the pattern are the path's, in halves; -1: it is not about the path. ``/a/`` is ``/a/*``."""
    whole = f"{pattern}*" if pattern.endswith("/") else pattern
    *named, last = (part.strip('"') for part in whole.strip("/").split("/"))
    if last == "?" and tuple(named) == path:
        return 2 * len(named) + 1
    return 2 * len(named) if last == "*" and tuple(named) == path[: len(named)] else -1


def _check_composite_index(container: Container, paths: list[Path], descending: list[bool]) -> None:
    for index in container.properties["indexingPolicy"].get("compositeIndexes", []):
        names = [tuple(part["path"].strip("/").split("/")) for part in index]
        downs = [part.get("order", "ascending").lower() == "descending" for part in index]
        if names == paths and downs in (descending, [not down for down in descending]):
            return
    raise bad_request(
        "The order by query does not have a corresponding composite index that it can be served from."
    )


@dataclass(frozen=True)
class Step:
    """What a page reads at most: all that is left in order, or what is left of one physical partition.

    Those that a split made of the partition where the last page ended are one step. ``bounds`` are the partition's;
    ``following`` are the next one's.
    """

    parts: tuple[Range, ...]
    after: Filter
    bounds: tuple[str, str] = ("", "")
    following: tuple[str, str] | None = None


def next_step(scope: Scope, order: Order, start: Position) -> Step:
    """What the page from ``start`` on reads: rows in order come from all partitions at once."""
    if order.columns:
        return Step(scope.ranges, order.after(start.keys, start.number) if start.number else Filter("1"))
    minimum, maximum = start.minimum, start.maximum
    if not maximum:
        minimum, maximum = scope.ranges[0].minimum, scope.ranges[0].maximum
    parts = tuple(part for part in scope.ranges if minimum <= part.minimum < maximum)
    following = next(((part.minimum, part.maximum) for part in scope.ranges if part.minimum >= maximum), None)
    return Step(parts, Filter("number > ?", (start.number,)), (minimum, maximum), following)


def count_items(run: sqlite3.Connection, container: Container, scope: Scope, now: int) -> int:
    """The items of the scope, without a look into them."""
    scoped, arguments = scope.sql()
    ids = ", ".join(str(part.id) for part in scope.ranges)
    row = run.execute(
        f"SELECT count(*) FROM {container.seen} WHERE range IN ({ids}) AND {scoped}"
        " AND (expires IS NULL OR expires >= ?)",
        (*arguments, now),
    ).fetchone()
    return int(row[0])


def candidates(  # noqa: PLR0913 - what a scan is made of
    run: sqlite3.Connection,
    container: Container,
    scope: Scope,
    *,
    step: Step,
    where: Filter,
    order: Order,
    now: int,
) -> Iterator[Candidate]:
    """The rows of a step, in order."""
    if order.columns and not container.rows:
        _ensure_index(run, container, order)
    parts = step.parts
    scoped, scope_arguments = scope.sql()
    keys = "".join(f", {column}" for column, _ in order.terms[:-1])
    ranges = (
        f"range = {parts[0].id}"
        if len(parts) == 1
        else f"range IN ({', '.join(str(part.id) for part in parts)})"
    )
    rows = run.execute(
        f"SELECT number, body, etag, timestamp{keys} FROM {container.seen} WHERE {ranges} AND {scoped}"
        f" AND (expires IS NULL OR expires >= ?) AND {where.sql} AND {step.after.sql} ORDER BY {order.sql()}",
        (*scope_arguments, now, *where.arguments, *step.after.arguments),
    )
    for number, body, etag, timestamp, *values in rows:
        yield Candidate(number, tuple(values), render(container, number, body, etag, timestamp))


def _ensure_index(run: sqlite3.Connection, container: Container, order: Order) -> None:
    prefix = f"{container.items}_order_"
    name = f"{prefix}{zlib.crc32(order.sql().encode()):08x}"
    existing = {
        row[0]
        for row in run.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND name GLOB ?", (f"{prefix}*",)
        )
    }
    if name not in existing and len(existing) < MAX_SORT_INDEXES:
        run.execute(f"CREATE INDEX {name} ON {container.items} (range, {order.sql()})")
