"""What of a query SQLite can do: a WHERE that lets through at least every match, and the keys of ORDER BY.

The evaluator looks at each row again, so a condition here may be too wide but never too narrow: the comments say
where SQL and the service's types part. Paths are written into the SQL as literals, since an index on an expression is
only used for the same text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devstack.cosmos.protocol.errors import unsupported
from devstack.cosmos.query import tree

Path = tuple[str, ...]

_COMPARISONS = ("<", "<=", ">", ">=")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_COLUMNS: dict[Path, str] = {("_ts",): "timestamp", ("id",): "id"}
_COMPUTED = frozenset({"_rid", "_self", "_etag", "_attachments"})
_RANK = (
    "CASE json_type(body, {path}) WHEN 'null' THEN 1 WHEN 'false' THEN 2 WHEN 'true' THEN 3 WHEN 'integer' THEN 4"
    " WHEN 'real' THEN 4 WHEN 'text' THEN 5 WHEN 'array' THEN 6 WHEN 'object' THEN 7 ELSE 0 END"
)
"""The place of a value's type in the order of types, as in ``values.rank``, with false before true."""


@dataclass(frozen=True)
class Filter:
    """A condition in SQL with its arguments; ``exact``: it lets through nothing but matches."""

    sql: str
    arguments: tuple[Any, ...] = ()
    exact: bool = False


EVERYTHING = Filter("1")


def narrow(where: tree.Expression | None, root: str, parameters: Mapping[str, Any]) -> Filter:
    """A condition that every matching row fulfils; EVERYTHING when none is known."""
    if where is None:
        return EVERYTHING
    return _Narrower(root, parameters).narrow(where) or EVERYTHING


def path_literal(path: Path) -> str | None:
    """The path as a literal of SQL; None for names that SQLite's paths cannot express."""
    if not path or any('"' in name or "\\" in name or not name.isprintable() for name in path):
        return None
    text = "$" + "".join(f'."{name}"' for name in path)
    return "'" + text.replace("'", "''") + "'"


def sort_columns(path: Path) -> tuple[str, str]:
    """SQL for the rank of the type and for the value, neither of them ever NULL. Raises 400."""
    column = _COLUMNS.get(path)
    if column is not None:
        return ("4" if column == "timestamp" else "5"), column
    literal = path_literal(path)
    if literal is None or path[0] in _COMPUTED:
        raise unsupported(f"ORDER BY {'.'.join(path)}")
    return _RANK.format(path=literal), f"ifnull(json_extract(body, {literal}), 0)"


class _Narrower:
    def __init__(self, root: str, parameters: Mapping[str, Any]) -> None:
        self._root = root
        self._parameters = parameters

    def narrow(self, where: tree.Expression) -> Filter | None:  # noqa: PLR0911 - a case for each kind of node
        match where:
            case tree.Binary("AND", left, right):
                return _joined("AND", [self.narrow(left), self.narrow(right)])
            case tree.Binary("OR", left, right):
                return _joined("OR", [self.narrow(left), self.narrow(right)])
            case tree.Binary(symbol, left, right) if symbol in _MIRRORED:
                return self._comparison(symbol, left, right) or self._comparison(
                    _MIRRORED[symbol], right, left
                )
            case tree.In(operand, choices):
                return _joined("OR", [self._comparison("=", operand, choice) for choice in choices])
            case tree.Between(operand, low, high):
                bounds = (self._comparison(">=", operand, low), self._comparison("<=", operand, high))
                return _joined("AND", list(bounds))
            case tree.Call(function, arguments):
                return self._call(function, arguments)
            case _:
                return None

    def _comparison(self, symbol: str, left: tree.Expression, right: tree.Expression) -> Filter | None:
        path, known, value = tree.path_of(left, self._root), *self._constant(right)
        if not path or not known or isinstance(value, list | dict):
            return None
        column, literal = _COLUMNS.get(path), path_literal(path)
        if literal is None or path[0] in _COMPUTED:
            return None
        extracted = column or f"json_extract(body, {literal})"
        if symbol == "!=":
            # SQL's true is 1, and an object equals its text: only for plain strings is this never too narrow.
            plain = isinstance(value, str) and not value.startswith(("{", "["))
            return Filter(f"{extracted} IS NOT ?", (value,)) if plain else None
        if value is None:
            is_null = column is None and symbol == "="
            return Filter(f"json_type(body, {literal}) = 'null'") if is_null else None
        if symbol in _COMPARISONS and isinstance(value, bool):
            return None
        exact = symbol == "=" and isinstance(value, str) and not value.startswith(("{", "["))
        return Filter(f"{extracted} {symbol} ?", (value,), exact) if _fits_sqlite(value) else None

    def _call(self, function: str, arguments: tuple[tree.Expression, ...]) -> Filter | None:
        path = tree.path_of(arguments[0], self._root) if arguments else None
        literal = path_literal(path) if path else None
        if not path or literal is None or path[0] in _COMPUTED or path in _COLUMNS:
            return None
        if function == "IS_DEFINED":
            return Filter(f"json_type(body, {literal}) IS NOT NULL")
        if function in ("STARTSWITH", "CONTAINS") and len(arguments) == 2:
            known, value = self._constant(arguments[1])
            if known and isinstance(value, str):
                position = "= 1" if function == "STARTSWITH" and value else ">= 1"
                return Filter(f"instr(json_extract(body, {literal}), ?) {position}", (value,))
        return None

    def _constant(self, expression: tree.Expression) -> tuple[bool, Any]:
        match expression:
            case tree.Constant(value):
                return isinstance(value, str | int | float | bool | None), value
            case tree.Parameter(name) if name in self._parameters:
                return True, self._parameters[name]
            case tree.Unary("-", tree.Constant(int() | float() as number)):
                return True, -number
            case _:
                return False, None


def _joined(word: str, parts: list[Filter | None]) -> Filter | None:
    """Of an AND what is not known may be left out, of an OR nothing."""
    known = [part for part in parts if part]
    if not known or (word == "OR" and len(known) < len(parts)):
        return None
    sql = "(" + f" {word} ".join(part.sql for part in known) + ")"
    exact = len(known) == len(parts) and all(part.exact for part in known)
    return Filter(sql, tuple(argument for part in known for argument in part.arguments), exact)


def _fits_sqlite(value: Any) -> bool:
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63
