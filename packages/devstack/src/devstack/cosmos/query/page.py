"""One page of a query over items: no more than asked for, and a continuation that neither skips nor repeats a result.

A page may be short, or empty, with a continuation: it ends with its physical partition, also when nothing there
matches, or when it is long enough in bytes, or when enough rows have been looked at.
"""

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from devstack.cosmos.protocol.errors import bad_request
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.query import tree
from devstack.cosmos.query.aggregate import whole_result
from devstack.cosmos.query.continuation import Position
from devstack.cosmos.query.evaluate import Compiler
from devstack.cosmos.query.pushdown import EVERYTHING, Filter, narrow
from devstack.cosmos.query.scan import Candidate, Order, Step, candidates, count_items, next_step
from devstack.cosmos.query.values import is_number
from devstack.cosmos.resources.scope import Scope
from devstack.cosmos.storage.epk import UNDEFINED
from devstack.cosmos.storage.model import Container
from devstack.cosmos.wire.messages import MAX_PAGE_BYTES

MAX_ROWS_READ = 10_000
"""Rows that one page looks at; then it ends, so that no query holds the server up."""


@dataclass(frozen=True)
class Page:
    """``results`` are JSON texts; ``next`` is None at the end."""

    results: list[str]
    next: Position | None


@dataclass(frozen=True)
class Task:
    """A query with everything it is asked of."""

    run: sqlite3.Connection
    container: Container
    scope: Scope
    query: tree.Query
    parameters: Mapping[str, Any]
    now: int

    @cached_property
    def where(self) -> Filter:
        """The part of WHERE that SQLite can evaluate."""
        root = self.query.root
        return narrow(self.query.where, root, self.parameters) if root else EVERYTHING

    def rows(self, step: Step, order: Order) -> Iterator[Candidate]:
        return candidates(
            self.run,
            self.container,
            self.scope,
            step=step,
            where=self.where,
            order=order,
            now=self.now,
        )


def is_whole(query: tree.Query) -> bool:
    """Whether the result is known only once every row was seen."""
    items = query.items or ()
    return query.distinct or bool(query.group_by) or any(tree.has_aggregate(value) for _, value in items)


def first_position(query: tree.Query, parameters: Mapping[str, Any]) -> Position:
    """The beginning, with the query's OFFSET and LIMIT or TOP. Raises 400."""
    compiler = Compiler(parameters)
    limits = [_count(compiler, part) for part in (query.top, query.limit) if part is not None]
    offset = 0 if query.offset is None else _count(compiler, query.offset)
    return Position(offset=offset, limit=min(limits, default=None))


def _count(compiler: Compiler, expression: tree.Expression) -> int:
    value = compiler.compile(expression)({})
    if not is_number(value) or value < 0 or value != int(value):
        raise bad_request("TOP, OFFSET and LIMIT need a whole number that is not negative.")
    return int(value)


def read_page(task: Task, start: Position, size: int) -> Page:
    """Raises 400 for what only shows when the query is run."""
    if not task.query.sources:
        return _page_of(_constant_result(task), start, size)
    if is_whole(task.query):
        return _page_of(whole_result(task.query, task.parameters, _documents(task)), start, size)
    return _streamed_page(task, start, size)


def _documents(task: Task) -> Iterable[Json]:
    """Every document that may match; for a query that looks into none, as many empty ones."""
    query = task.query
    order = Order.of_query(query, task.container)
    only_counts = bool(query.items) and all(_only_counts(value) for _, value in query.items or ())
    if only_counts and query.where is None and not query.group_by and query.root and len(query.sources) == 1:
        return itertools.repeat({}, count_items(task.run, task.container, task.scope, task.now))
    everything = Step(task.scope.ranges, EVERYTHING)
    return (candidate.document() for candidate in task.rows(everything, order))


def _only_counts(value: tree.Expression) -> bool:
    """Whether the value depends on the number of rows alone."""
    if isinstance(value, tree.Call) and value.function == "COUNT":
        return isinstance(value.arguments[0], tree.Constant)
    if isinstance(value, tree.ArrayLiteral | tree.ObjectLiteral):
        return all(_only_counts(child) for child in tree.children(value))
    return False


def _constant_result(task: Task) -> list[Any]:
    value = Compiler(task.parameters).projection(task.query)({})
    return [] if value is UNDEFINED else [value]


def _page_of(results: list[Any], start: Position, size: int) -> Page:
    """A page of results that are all there; here ``number`` counts what was returned before."""
    end = None if start.limit is None else start.offset + start.limit
    wanted = results[start.offset : end]
    page = wanted[start.number : start.number + size]
    reached = start.number + len(page)
    return Page(
        [dump_json(value) for value in page],
        replace(start, number=reached) if reached < len(wanted) else None,
    )


def _streamed_page(task: Task, start: Position, size: int) -> Page:
    query = task.query
    compiler = Compiler(task.parameters)
    order = Order.of_query(query, task.container)
    returns_document = query.items is None and len(query.sources) == 1 and bool(query.root)
    matches, project = compiler.predicate(query.where), compiler.projection(query)
    expand = compiler.document_rows(query)
    is_exact = query.where is None or task.where.exact

    def results_of(candidate: Candidate) -> Iterator[str]:
        if returns_document and is_exact:
            yield candidate.text
            return
        for row in expand(candidate.document()):
            if matches(row) and (value := project(row)) is not UNDEFINED:
                yield candidate.text if returns_document else dump_json(value)

    step = next_step(task.scope, order, start)
    return _fill(task.rows(step, order), results_of, step, start, size)


def _fill(rows: Iterator[Candidate], results_of: Any, step: Step, start: Position, size: int) -> Page:
    page: list[str] = []
    minimum, maximum = step.bounds
    position, length = replace(start, minimum=minimum, maximum=maximum), 0
    if start.limit == 0:
        return Page(page, None)
    for read, candidate in enumerate(rows):
        if len(page) >= size or length > MAX_PAGE_BYTES or read >= MAX_ROWS_READ:
            return Page(page, position)
        inner = position.inner
        position = replace(position, inner=0)
        for text in itertools.islice(results_of(candidate), inner, None):
            if len(page) >= size:
                return Page(page, replace(position, inner=inner))
            inner += 1
            if position.offset:
                position = replace(position, offset=position.offset - 1)
                continue
            page.append(text)
            length += len(text)
            if position.limit is not None:
                position = replace(position, limit=position.limit - 1)
                if position.limit == 0:
                    return Page(page, None)
        position = position.after(candidate.number, candidate.keys)
    if step.following is None:
        return Page(page, None)
    minimum, maximum = step.following
    return Page(page, replace(position.after(0, ()), minimum=minimum, maximum=maximum))
