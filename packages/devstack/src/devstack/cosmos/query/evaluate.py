"""Expressions become functions of one row; what they give is what the service's type rules say.

A row maps the names of FROM to values. Parameters are bound when a query is compiled, so a row costs no look-up of
them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from devstack.cosmos.protocol.errors import bad_request, unsupported
from devstack.cosmos.query import tree
from devstack.cosmos.query.functions import FUNCTIONS
from devstack.cosmos.query.operators import BINARY, UNARY
from devstack.cosmos.query.values import either, equal, is_number
from devstack.cosmos.storage.epk import UNDEFINED

Row = Mapping[str, Any]
Evaluator = Callable[[Row], Any]


class Compiler:
    """Compiles the expressions of one query. ``parameters`` are by name without the ``@``.

    ``aggregate`` compiles an aggregate function where there may be one; elsewhere it is refused.
    """

    def __init__(
        self, parameters: Mapping[str, Any], aggregate: Callable[[tree.Call], Evaluator] | None = None
    ) -> None:
        self._parameters = parameters
        self._aggregate = aggregate

    def compile(self, expression: tree.Expression) -> Evaluator:  # noqa: C901, PLR0911, PLR0912 - a case for each node
        match expression:
            case tree.Constant(value):
                return lambda _row: value
            case tree.Parameter(name):
                bound = self.parameter(name)
                return lambda _row: bound
            case tree.Name(name):
                return _name(name)
            case tree.Property(base, key):
                return _property(self.compile(base), self.compile(key))
            case tree.Unary(symbol, operand):
                return _applied(UNARY[symbol], self.compile(operand))
            case tree.Binary(symbol, left, right):
                return self._binary(symbol, left, right)
            case tree.In(operand, choices):
                return _in(self.compile(operand), [self.compile(choice) for choice in choices])
            case tree.Between(operand, low, high):
                return self.compile(
                    tree.Binary("AND", tree.Binary(">=", operand, low), tree.Binary("<=", operand, high))
                )
            case tree.Like(operand, pattern, escape):
                return _like(self.compile(operand), self.compile(pattern), escape)
            case tree.Conditional(test, chosen, other):
                return _conditional(self.compile(test), self.compile(chosen), self.compile(other))
            case tree.Call():
                return self._call(expression)
            case tree.ObjectLiteral(members):
                return _object([(name, self.compile(value)) for name, value in members])
            case tree.ArrayLiteral(elements):
                return _array([self.compile(element) for element in elements])
            case tree.Subquery(kind, query):
                return self._subquery(kind, query)

    def parameter(self, name: str) -> Any:
        """Raises 400 for a parameter that the request does not carry."""
        if name not in self._parameters:
            raise bad_request(f"The query has no value for its parameter @{name}.")
        return self._parameters[name]

    def rows(self, sources: tuple[tree.Source, ...]) -> Callable[[Row], Iterator[Row]]:
        """All combinations of what the members of FROM name, given the names that are already there."""
        steps = [(source.alias, source.iterate, self.compile(source.value)) for source in sources]

        def expand(row: Row, index: int) -> Iterator[Row]:
            if index == len(steps):
                yield row
                return
            alias, iterate, evaluate = steps[index]
            value = evaluate(row)
            for element in _elements(value) if iterate else ([] if value is UNDEFINED else [value]):
                yield from expand({**row, alias: element}, index + 1)

        return lambda row: expand(row, 0)

    def document_rows(self, query: tree.Query) -> Callable[[Any], Iterator[Row]]:
        """The rows that FROM makes of one document; without FROM there is one, of nothing."""
        if not query.sources:
            return lambda _document: iter([{}])
        if query.root:
            root, expand = query.root, self.rows(query.sources[1:])
            return lambda document: expand({root: document})
        base: tree.Expression = query.sources[0].value
        while isinstance(base, tree.Property):
            base = base.base
        if not isinstance(base, tree.Name):
            raise unsupported("FROM with anything but a path")
        name, expand = base.name, self.rows(query.sources)
        return lambda document: expand({name: document})

    def projection(self, query: tree.Query) -> Evaluator:
        """What SELECT makes of a row; undefined for SELECT VALUE of nothing."""
        if query.items is None:
            if len(query.sources) > 1:
                raise bad_request("'SELECT *' is only valid with a single input set.")
            return _name(query.sources[0].alias)
        if query.value:
            return self.compile(query.items[0][1])
        return _object([(name, self.compile(value)) for name, value in query.items])

    def predicate(self, where: tree.Expression | None) -> Callable[[Row], bool]:
        if where is None:
            return lambda _row: True
        evaluate = self.compile(where)
        return lambda row: evaluate(row) is True

    def _binary(self, symbol: str, left: tree.Expression, right: tree.Expression) -> Evaluator:
        first, second = self.compile(left), self.compile(right)
        if symbol == "??":
            return lambda row: second(row) if (value := first(row)) is UNDEFINED else value
        apply = BINARY[symbol]
        return lambda row: apply(first(row), second(row))

    def _call(self, call: tree.Call) -> Evaluator:
        if tree.is_aggregate(call):
            if self._aggregate is None:
                raise bad_request(
                    f"The aggregate function {call.function} is not valid at this place of a query."
                )
            return self._aggregate(call)
        function = FUNCTIONS[call.function]
        arguments = [self.compile(argument) for argument in call.arguments]
        return lambda row: function(*(argument(row) for argument in arguments))

    def _subquery(self, kind: str, query: tree.Query) -> Evaluator:
        if query.order_by or query.group_by or query.distinct or query.offset or query.top:
            raise unsupported("a subquery with ORDER BY, GROUP BY, DISTINCT, OFFSET or TOP")
        if query.items and any(tree.has_aggregate(value) for _, value in query.items):
            raise unsupported("a subquery with an aggregate function")
        rows = self.rows(query.sources)
        matches, project = self.predicate(query.where), self.projection(query)

        def results(row: Row) -> Iterator[Any]:
            values = (project(inner) for inner in rows(row) if matches(inner))
            return (value for value in values if value is not UNDEFINED)

        if kind == "EXISTS":
            return lambda row: any(True for _ in results(row))
        if kind == "ARRAY":
            return lambda row: list(results(row))
        return lambda row: next(results(row), UNDEFINED)


def _name(name: str) -> Evaluator:
    def evaluate(row: Row) -> Any:
        if name not in row:
            raise bad_request(f"Identifier '{name}' could not be resolved.")
        return row[name]

    return evaluate


def _property(base: Evaluator, key: Evaluator) -> Evaluator:
    def evaluate(row: Row) -> Any:
        value, name = base(row), key(row)
        if isinstance(value, dict) and isinstance(name, str):
            return value.get(name, UNDEFINED)
        if isinstance(value, list) and is_number(name) and 0 <= name < len(value) and name == int(name):
            return value[int(name)]
        return UNDEFINED

    return evaluate


def _elements(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _applied(function: Callable[[Any], Any], operand: Evaluator) -> Evaluator:
    return lambda row: function(operand(row))


def _conditional(test: Evaluator, chosen: Evaluator, other: Evaluator) -> Evaluator:
    return lambda row: chosen(row) if test(row) is True else other(row)


def _object(members: list[tuple[str, Evaluator]]) -> Evaluator:
    def evaluate(row: Row) -> Any:
        values = ((name, value(row)) for name, value in members)
        return {name: value for name, value in values if value is not UNDEFINED}

    return evaluate


def _array(elements: list[Evaluator]) -> Evaluator:
    def evaluate(row: Row) -> Any:
        values = (element(row) for element in elements)
        return [value for value in values if value is not UNDEFINED]

    return evaluate


def _in(operand: Evaluator, choices: list[Evaluator]) -> Evaluator:
    def evaluate(row: Row) -> Any:
        value = operand(row)
        result: Any = False
        for choice in choices:
            result = either(result, equal(value, choice(row)))
        return result

    return evaluate


def _like(operand: Evaluator, pattern: Evaluator, escape: str | None) -> Evaluator:
    compiled: dict[str, re.Pattern[str]] = {}

    def evaluate(row: Row) -> Any:
        text, like = operand(row), pattern(row)
        if not isinstance(text, str) or not isinstance(like, str):
            return UNDEFINED
        if like not in compiled:
            compiled[like] = re.compile(_like_pattern(like, escape), re.DOTALL)
        return compiled[like].fullmatch(text) is not None

    return evaluate


def _like_pattern(like: str, escape: str | None) -> str:
    """``%`` is any text, ``_`` any character, ``[...]`` one of several. Runs of ``%`` are one."""
    pieces: list[str] = []
    characters = iter(re.sub("%+", "%", like) if escape is None else like)
    for character in characters:
        if character == escape:
            pieces.append(re.escape(next(characters, "")))
        elif character in "%_":
            pieces.append(".*" if character == "%" else ".")
        elif character == "[":
            pieces.append(_character_class(characters))
        else:
            pieces.append(re.escape(character))
    return "".join(pieces)


def _character_class(characters: Iterator[str]) -> str:
    inside = "".join(iter(lambda: next(characters, "]"), "]"))
    negated = inside.startswith("^")
    members = re.escape(inside[negated:]).replace(r"\-", "-")
    if not members:
        return r"(?!)"
    return f"[{'^' if negated else ''}{members}]"
