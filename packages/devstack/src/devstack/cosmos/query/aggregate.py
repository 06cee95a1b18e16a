"""Results that need every row: aggregates, GROUP BY and DISTINCT, in memory that grows with the result only."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from devstack.cosmos.protocol.errors import bad_request
from devstack.cosmos.query import tree
from devstack.cosmos.query.evaluate import Compiler, Evaluator, Row
from devstack.cosmos.query.values import hashable, is_number, sort_key
from devstack.cosmos.storage.epk import UNDEFINED


def whole_result(query: tree.Query, parameters: Mapping[str, Any], documents: Iterable[Any]) -> list[Any]:
    """All results, in the order of the documents; of groups, in the order in which they first occur."""
    compiler = Compiler(parameters)
    matches, expand = compiler.predicate(query.where), compiler.document_rows(query)
    rows = (row for document in documents for row in expand(document) if matches(row))
    items = query.items or ()
    if query.group_by or any(tree.has_aggregate(value) for _, value in items):
        results = _grouped(query, parameters, rows)
    else:
        project = compiler.projection(query)
        results = [project(row) for row in rows]
    defined = [value for value in results if value is not UNDEFINED]
    return _distinct(defined) if query.distinct else defined


def _distinct(values: list[Any]) -> list[Any]:
    first: dict[Any, Any] = {}
    for value in values:
        first.setdefault(hashable(value), value)
    return list(first.values())


def _grouped(query: tree.Query, parameters: Mapping[str, Any], rows: Iterable[Row]) -> list[Any]:
    groups = _Groups(query, parameters)
    for row in rows:
        groups.add(row)
    return groups.results()


class _Groups:
    """One set of accumulators for each value of GROUP BY; without GROUP BY there is one set, even of no rows."""

    def __init__(self, query: tree.Query, parameters: Mapping[str, Any]) -> None:
        self._calls: list[tuple[Evaluator, Callable[[], _Accumulator]]] = []
        plain = Compiler(parameters)
        self._keys = [plain.compile(key) for key in query.group_by]
        self._groups: dict[Any, tuple[Row, list[_Accumulator]]] = {}

        def aggregate(call: tree.Call) -> Evaluator:
            place = len(self._calls)
            self._calls.append((plain.compile(call.arguments[0]), _ACCUMULATORS[call.function]))
            return lambda row: row["$"][place].result()

        _check_items(query)
        self._project = Compiler(parameters, aggregate).projection(query)
        if not query.group_by:
            self._group((), {})

    def _group(self, key: Any, row: Row) -> list["_Accumulator"]:
        if key not in self._groups:
            self._groups[key] = (row, [make() for _, make in self._calls])
        return self._groups[key][1]

    def add(self, row: Row) -> None:
        key = tuple(hashable(evaluate(row)) for evaluate in self._keys)
        for (evaluate, _), accumulator in zip(self._calls, self._group(key, row), strict=True):
            accumulator.add(evaluate(row))

    def results(self) -> list[Any]:
        return [self._project({**row, "$": accumulators}) for row, accumulators in self._groups.values()]


def _check_items(query: tree.Query) -> None:
    """What is selected next to an aggregate must be the same for all its rows."""
    for _, value in query.items or ():
        if value not in query.group_by and not _is_constant_per_group(value, query):
            raise bad_request(
                "A selected expression is neither an aggregate function nor contained in the GROUP BY clause."
            )


def _is_constant_per_group(value: tree.Expression, query: tree.Query) -> bool:
    if tree.is_aggregate(value) or value in query.group_by:
        return True
    if isinstance(value, tree.Name | tree.Subquery):
        return False
    if isinstance(value, tree.Binary | tree.Unary) and tree.has_aggregate(value):
        raise bad_request("Compositions of aggregates and other expressions are not allowed.")
    return all(_is_constant_per_group(child, query) for child in tree.children(value))


class _Accumulator(ABC):
    """Undefined values are as if they were not there."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """Take one more value."""

    @abstractmethod
    def result(self) -> Any:
        """What all values come to."""


class _Count(_Accumulator):
    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Any) -> None:
        self._count += value is not UNDEFINED

    def result(self) -> Any:
        return self._count


class _Sum(_Accumulator):
    """One value that is no number makes the sum undefined."""

    def __init__(self) -> None:
        self._sum: Any = 0
        self._count = 0

    def add(self, value: Any) -> None:
        if value is UNDEFINED or self._sum is UNDEFINED:
            return
        self._count += 1
        self._sum = self._sum + value if is_number(value) else UNDEFINED

    def result(self) -> Any:
        return self._sum


class _Average(_Sum):
    def result(self) -> Any:
        return UNDEFINED if self._sum is UNDEFINED or not self._count else self._sum / self._count


class _Extreme(_Accumulator):
    """The first or last of the values in the order of types; arrays and objects have no place in it."""

    def __init__(self, choose: Callable[..., Any]) -> None:
        self._choose = choose
        self._best: Any = UNDEFINED

    def add(self, value: Any) -> None:
        if value is UNDEFINED or isinstance(value, list | dict):
            return
        self._best = value if self._best is UNDEFINED else self._choose(self._best, value, key=sort_key)

    def result(self) -> Any:
        return self._best


_ACCUMULATORS: dict[str, Callable[[], _Accumulator]] = {
    "COUNT": _Count,
    "SUM": _Sum,
    "AVG": _Average,
    "MIN": lambda: _Extreme(min),
    "MAX": lambda: _Extreme(max),
}
