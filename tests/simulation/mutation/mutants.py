"""One place of a module changed: what a mistake of one operator, constant or statement would make of it.

No library is used: what there is (mutmut, cosmic-ray) changes operators and constants too, but removes no statement,
return or except clause, and those are what an outbox is made of. Left alone is what no rule can see: words for people,
what is logged or measured, types, decorators.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COMPUTED: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Add(), ast.Div: ast.Mult(), ast.FloorDiv: ast.Mult(),
    ast.BitOr: ast.BitAnd(), ast.BitAnd: ast.BitOr(),
}  # fmt: skip
_SAID = ("_log", "log", "logger", "logging", "telemetry", "_tell", "saying", "metrics", "tracing")
"""What begins with one of these speaks to people alone."""
_NOT_SEEN = {"__repr__", "__str__", "__hash__"}
_ARGUMENTS = {"repr", "compare", "kw_only", "exc_info", "strict"}
"""Nothing but what is shown, or checked."""
_LONGEST = 120
_BUILTIN_TYPES = {"bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple", "type"}

Change = Callable[[], None]


@dataclass(frozen=True)
class Mutant:
    """One change of one file. ``where`` and ``what`` name it whatever stands above it."""

    file: str
    number: int
    """Of those of its file."""
    line: int
    statement: int
    """The first line of the statement."""
    where: str
    """The function or class."""
    what: str
    warm: bool
    """Whether it is inside a function: exchanging that function's code is enough."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.where}: {self.what}"


def mutants(file: str, source: str) -> list[Mutant]:
    """All of a file, in its order."""
    found, times = [], dict[tuple[str, str], int]()
    for number, (node, statement, where, what, warm, _) in enumerate(_Places().of(ast.parse(source))):
        again = times[where, what] = times.get((where, what), 0) + 1
        told = what if again == 1 else f"{what} (no. {again})"
        found.append(Mutant(file, number, node.lineno, statement, where, told, warm))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The file with that change."""
    tree = ast.parse(source)
    [*_Places().of(tree)][number][-1]()
    return ast.fix_missing_locations(tree)


Place = tuple[ast.stmt | ast.expr, int, str, str, bool, Change]


class _Places:
    """Walks a module. A change may be made once, and the walk is over then."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._depth = 0
        self._line = 0

    def of(self, tree: ast.Module) -> Iterator[Place]:
        yield from self._block(tree.body)

    def _place(self, node: ast.stmt | ast.expr, what: str, change: Change) -> Place:
        return node, self._line, ".".join(self._names) or "module", what, self._depth > 0, change

    # -- statements

    def _block(self, body: list[ast.stmt], *, last: bool = False) -> Iterator[Place]:
        for at, node in enumerate([*body]):
            self._line = node.lineno
            yield from self._statement(body, at, node, last=last and at == len(body) - 1)

    def _statement(self, body: list[ast.stmt], at: int, node: ast.stmt, *, last: bool) -> Iterator[Place]:  # noqa: C901, PLR0912 - one branch a kind
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if node.name not in _NOT_SEEN:
                    yield from self._function(node)
                return
            case ast.ClassDef():
                if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                    self._names.append(node.name)
                    yield from self._block(node.body)
                    self._names.pop()
                return
            case ast.Expr(value=value):
                if isinstance(value, ast.Constant) or _said(value):
                    return
                yield self._removed(body, at, node)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Import() | ast.ImportFrom() | ast.Assert():
                return
            case ast.Raise() | ast.Break() | ast.Continue() | ast.AugAssign() | ast.Delete():
                yield self._removed(body, at, node)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._removed(body, at, node)
            case ast.Return(value=value):
                if not last:
                    yield self._removed(body, at, node)
                elif value is not None and not isinstance(value, ast.Constant):
                    yield self._place(
                        node, f"{_text(node)} -> return None", _set(node, "value", ast.Constant(None))
                    )
            case ast.Try():
                for number, handler in enumerate(node.handlers):
                    caught = _text(handler.type) if handler.type else "all"
                    yield self._place(handler, f"except {caught} removed", _uncaught(body, at, node, number))  # type: ignore[arg-type]  # has a line
            case ast.If(test=test) if _said(test):
                return
            case ast.If(test=test) | ast.While(test=test):
                yield from self._condition(node, "test", test)
            case _:
                pass
        yield from self._inside(node, last=last)

    def _inside(self, node: ast.stmt, *, last: bool) -> Iterator[Place]:
        goes_on = last and isinstance(node, ast.If | ast.Try | ast.With | ast.AsyncWith | ast.Match)
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "cause", "type_params"}:
                continue
            match value:
                case ast.expr() if not isinstance(node, ast.Raise):  # what an error says is for people
                    yield from self._expression(node, name, value)
                case [ast.stmt(), *_]:
                    yield from self._block(value, last=goes_on)
                case [ast.ExceptHandler() | ast.match_case() | ast.withitem(), *_]:
                    for part in value:
                        yield from self._part(part, last=goes_on)

    def _part(
        self, part: ast.ExceptHandler | ast.match_case | ast.withitem, *, last: bool
    ) -> Iterator[Place]:
        if isinstance(part, ast.withitem):
            yield from self._expression(part, "context_expr", part.context_expr)
            return
        if isinstance(part, ast.match_case) and part.guard is not None:
            yield from self._condition(part, "guard", part.guard)
        yield from self._block(part.body, last=last)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Place]:
        self._names.append(node.name)
        defaults: list[list[Any]] = [node.args.defaults, node.args.kw_defaults]
        for values in defaults:
            for at, value in enumerate(values):
                if value is not None:
                    yield from self._expression(values, at, value)
        self._depth += 1
        yield from self._block(node.body, last=True)
        self._depth -= 1
        self._names.pop()

    def _removed(self, body: list[ast.stmt], at: int, node: ast.stmt) -> Place:
        def change() -> None:
            body[at] = ast.copy_location(ast.Pass(), node)

        return self._place(node, f"{_text(node)} removed", change)

    # -- expressions

    def _condition(self, owner: ast.AST, name: str, test: ast.expr) -> Iterator[Place]:
        told_by_its_operator = (
            isinstance(test, ast.Compare) and not isinstance(test.ops[0], _BOUNDS)
        ) or isinstance(test, ast.UnaryOp | ast.Constant)
        if not told_by_its_operator:
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            yield self._place(test, f"{_text(test)} -> not ({_text(test)})", _set(owner, name, negated))

    def _expression(
        self, owner: ast.AST | list[ast.expr], name: str | int, node: ast.expr
    ) -> Iterator[Place]:
        def replaced(new: ast.expr) -> Place:
            return self._place(
                node, f"{_text(node)} -> {_text(new)}", _set(owner, name, ast.copy_location(new, node))
            )

        if _said(node) or isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and _is_type(node)):
            return
        match node:
            case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in _COMPARED:
                yield replaced(ast.Compare(left, [_COMPARED[type(op)]()], right))
            case ast.BoolOp(op=op, values=values):
                yield replaced(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield replaced(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED and not _is_text(
                left, right
            ):
                yield replaced(ast.BinOp(left, _COMPUTED[type(op)], right))
            case ast.Constant(value=bool(value)):
                yield replaced(ast.Constant(not value))
            case ast.Constant(value=0 | 1 as value) if isinstance(value, int):
                yield replaced(ast.Constant(1 - value))
            case ast.IfExp(test=test):
                yield from self._condition(node, "test", test)
        yield from self._parts(node)

    def _parts(self, node: ast.AST) -> Iterator[Place]:
        inner = isinstance(node, ast.Lambda)
        self._depth += inner and self._depth > 0
        for name, value in ast.iter_fields(node):
            parts = value if isinstance(value, list) else [value]
            for at, part in enumerate(parts):
                if isinstance(part, ast.expr):
                    owner, key = (parts, at) if isinstance(value, list) else (node, name)
                    yield from self._expression(owner, key, part)
                elif isinstance(part, ast.keyword) and part.arg not in _ARGUMENTS:
                    yield from self._expression(part, "value", part.value)
                elif isinstance(part, ast.comprehension):
                    for number, test in enumerate(part.ifs):
                        yield from self._condition_of(part.ifs, number, test)
                    yield from self._parts(part)
        self._depth -= inner and self._depth > 0

    def _condition_of(self, tests: list[ast.expr], at: int, test: ast.expr) -> Iterator[Place]:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Await):
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            yield self._place(test, f"{_text(test)} -> not ({_text(test)})", _set(tests, at, negated))


def _set(owner: ast.AST | list[ast.expr], name: str | int, new: ast.expr) -> Change:
    if isinstance(owner, list):
        return lambda: owner.__setitem__(int(name), new)
    return lambda: setattr(owner, str(name), new)


def _uncaught(body: list[ast.stmt], at: int, node: ast.Try, number: int) -> Change:
    def change() -> None:
        left = copy.copy(node)
        left.handlers = [each for each in node.handlers if each is not node.handlers[number]]
        if left.handlers or left.finalbody:
            if not left.handlers:
                left.body, left.orelse = [*node.body, *node.orelse], []
            body[at] = left
        else:
            body[at : at + 1] = [*node.body, *node.orelse]

    return change


def _said(node: ast.AST) -> bool:
    """Whether it is a call that only tells somebody."""
    while isinstance(node, ast.Await | ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in _SAID


def _is_text(*nodes: ast.expr) -> bool:
    return any(
        isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        for node in nodes
    )


def _is_type(node: ast.expr) -> bool:
    """Whether it names types, or unions of them: a class's name has small letters after its first."""
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_type(left) and _is_type(right)
        case ast.Subscript(value=value):
            return _is_type(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _BUILTIN_TYPES or (name[:1].isupper() and not name.isupper())
        case ast.Constant(value=value):
            return value is None
        case _:
            return False


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
