"""Query text becomes a tree, or a 400 that names what is wrong or not supported; nothing is skipped over in silence."""

import functools
import json
import logging
import re
from collections.abc import Callable
from typing import Any

from sqlglot import errors, exp

from devstack.cosmos.protocol.errors import CosmosError, bad_request, unsupported
from devstack.cosmos.query import dialect, tree
from devstack.cosmos.query.functions import FUNCTIONS
from devstack.cosmos.storage.epk import UNDEFINED

MAX_LENGTH = 262_144
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits: the longest query text, in characters."""

logging.getLogger("sqlglot").setLevel(logging.ERROR)

_BINARY: dict[type[exp.Expression], str] = {
    exp.And: "AND",
    exp.Or: "OR",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.DPipe: "||",
}
_UNARY: dict[type[exp.Expression], str] = {exp.Not: "NOT", exp.Neg: "-", exp.BitwiseNot: "~"}
_UNICODE_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")


@functools.lru_cache(maxsize=256)
def parse(text: str) -> tree.Query:
    """The query. Raises 400."""
    if len(text) > MAX_LENGTH:
        raise bad_request(f"The query text is longer than {MAX_LENGTH} characters.")
    try:
        statements = dialect.Cosmos().parse(text)
    except (errors.SqlglotError, RecursionError) as error:
        raise _syntax_error(str(error)) from error
    if len(statements) != 1 or not isinstance(statements[0], dialect.Query):
        raise _syntax_error("one SELECT is expected")
    try:
        return _query(statements[0])
    except RecursionError as error:
        raise bad_request("The query is nested too deeply.") from error


def _syntax_error(what: str) -> CosmosError:
    plain = re.sub(r"\x1b\[\d+m", "", what).splitlines() or [""]
    problem = {"severity": "Error", "code": "SC1001", "message": f"Syntax error: {plain[0][:300]}"}
    return bad_request(json.dumps({"errors": [problem]}))


def _query(node: dialect.Query) -> tree.Query:
    sources = tuple(_source(source) for source in node.args.get("sources") or ())
    group = tuple(_expression(part) for part in node.args.get("group") or ())
    order = tuple(
        tree.SortKey(_expression(part.this), bool(part.args.get("desc")))
        for part in node.args.get("order") or ()
    )
    return tree.Query(
        items=_items(node, has_from=bool(sources)),
        value=bool(node.args.get("value")),
        distinct=bool(node.args.get("distinct")),
        top=_optional(node, "top"),
        sources=sources,
        where=_optional(node, "where"),
        group_by=group,
        order_by=order,
        offset=_optional(node, "offset"),
        limit=_optional(node, "limit"),
    )


def _optional(node: exp.Expression, name: str) -> tree.Expression | None:
    part = node.args.get(name)
    return None if part is None else _expression(part)


def _items(node: dialect.Query, *, has_from: bool) -> tuple[tuple[str, tree.Expression], ...] | None:
    parts = node.expressions
    if any(isinstance(part, exp.Star) for part in parts):
        if len(parts) > 1 or node.args.get("value") or not has_from:
            raise _syntax_error("'*' stands alone, and with FROM")
        return None
    if not parts or (node.args.get("value") and len(parts) > 1):
        raise _syntax_error("SELECT VALUE takes one expression")
    unnamed = 0
    items = []
    for part in parts:
        name = _item_name(part)
        if name is None:
            unnamed += 1
            name = f"${unnamed}"
        items.append((name, _expression(part.this if isinstance(part, exp.Alias) else part)))
    return tuple(items)


def _item_name(part: exp.Expression) -> str | None:
    """The alias, or the last name of a path."""
    if isinstance(part, exp.Alias | exp.Column):
        return part.alias_or_name
    if isinstance(part, exp.Dot) and isinstance(part.expression, exp.Identifier):
        return part.expression.name
    if isinstance(part, exp.Bracket) and part.expressions[0].is_string:
        return str(part.expressions[0].name)
    return None


def _source(node: dialect.Source) -> tree.Source:
    value = _expression(node.this)
    alias = node.args.get("alias")
    if alias is not None:
        name = alias.name
    elif node.args.get("iterate"):
        raise _syntax_error("a name is expected before IN")
    else:
        name = _item_name(node.this) or ""
    return tree.Source(name, value, bool(node.args.get("iterate")))


def _expression(node: Any) -> tree.Expression:
    kind = type(node)
    if kind in (exp.And, exp.Or):
        return _balanced(_BINARY[kind], [_expression(operand) for operand in _operands(node, kind)])
    if kind in _BINARY:
        return tree.Binary(_BINARY[kind], _expression(node.this), _expression(node.expression))
    if kind in _UNARY:
        return tree.Unary(_UNARY[kind], _expression(node.this))
    convert = _CONVERT.get(kind)
    if convert is None:
        raise unsupported(f"{kind.__name__} in a query")
    return convert(node)


def _operands(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    """The operands of a chain of AND or of OR, which the parser nests to the left."""
    operands = []
    while isinstance(node, kind):
        operands.append(node.expression)
        node = node.this
    return [node, *reversed(operands)]


def _balanced(operator: str, operands: list[tree.Expression]) -> tree.Expression:
    """A chain as a tree of small depth: clients send thousands of conditions joined by OR."""
    if len(operands) == 1:
        return operands[0]
    half = (len(operands) + 1) // 2
    return tree.Binary(operator, _balanced(operator, operands[:half]), _balanced(operator, operands[half:]))


def _literal(node: exp.Literal) -> tree.Expression:
    if node.is_string:
        if _UNICODE_ESCAPE.search(node.name):
            raise unsupported("\\u escapes in a query's text; use a parameter")
        return tree.Constant(node.name)
    try:
        return tree.Constant(int(node.name))
    except ValueError:
        return tree.Constant(float(node.name))


def _column(node: exp.Column) -> tree.Expression:
    names = [part.name for part in node.parts]
    if names == ["undefined"]:
        return tree.Constant(UNDEFINED)
    value: tree.Expression = tree.Name(names[0])
    for name in names[1:]:
        value = tree.Property(value, tree.Constant(name))
    return value


def _dot(node: exp.Dot) -> tree.Expression:
    if isinstance(node.expression, exp.Anonymous):
        raise unsupported("user defined functions")
    return tree.Property(_expression(node.this), tree.Constant(node.expression.name))


def _bracket(node: exp.Bracket) -> tree.Expression:
    if len(node.expressions) != 1:
        raise _syntax_error("one index is expected in brackets")
    return tree.Property(_expression(node.this), _expression(node.expressions[0]))


def _in(node: exp.In) -> tree.Expression:
    if not node.expressions:
        raise _syntax_error("IN needs a list")
    return tree.In(_expression(node.this), tuple(_expression(choice) for choice in node.expressions))


def _like(node: exp.Like) -> tree.Expression:
    return _negated(node, tree.Like(_expression(node.this), _expression(node.expression), None))


def _escape(node: exp.Escape) -> tree.Expression:
    like, escape = node.this, node.expression.name
    if not isinstance(like, exp.Like) or len(escape) != 1:
        raise _syntax_error("ESCAPE belongs to LIKE and takes one character")
    return _negated(like, tree.Like(_expression(like.this), _expression(like.expression), escape))


def _negated(node: exp.Expression, value: tree.Expression) -> tree.Expression:
    return tree.Unary("NOT", value) if node.args.get("negate") else value


def _call(node: exp.Anonymous) -> tree.Expression:
    name = str(node.this).upper()
    if name == "ARRAY" and len(node.expressions) == 1 and isinstance(node.expressions[0], dialect.Query):
        return tree.Subquery("ARRAY", _query(node.expressions[0]))
    arguments = tuple(_expression(argument) for argument in node.expressions)
    if name in tree.AGGREGATES:
        low, high = 1, 1
    elif name in FUNCTIONS:
        low, high = FUNCTIONS[name].least, FUNCTIONS[name].most
    else:
        raise unsupported(f"the function {name}")
    if not low <= len(arguments) <= high:
        raise bad_request(f"The function {name} takes {low} to {high} arguments, not {len(arguments)}.")
    return tree.Call(name, arguments)


def _object(node: exp.Struct) -> tree.Expression:
    members = []
    for member in node.expressions:
        if not isinstance(member, exp.PropertyEQ):
            raise _syntax_error("a name and a colon are expected in braces")
        members.append((member.this.name, _expression(member.expression)))
    return tree.ObjectLiteral(tuple(members))


_CONVERT: dict[type[exp.Expression], Callable[[Any], tree.Expression]] = {
    exp.Literal: _literal,
    exp.Boolean: lambda node: tree.Constant(bool(node.this)),
    exp.Null: lambda _: tree.Constant(None),
    exp.Paren: lambda node: _expression(node.this),
    exp.Parameter: lambda node: tree.Parameter(node.name),
    exp.Column: _column,
    exp.Identifier: lambda node: tree.Name(node.name),
    exp.Dot: _dot,
    exp.Bracket: _bracket,
    exp.In: _in,
    exp.Coalesce: lambda node: tree.Binary("??", _expression(node.this), _expression(node.expressions[0])),
    exp.Between: lambda node: tree.Between(
        _expression(node.this), _expression(node.args["low"]), _expression(node.args["high"])
    ),
    exp.Like: _like,
    exp.Escape: _escape,
    exp.Anonymous: _call,
    exp.Struct: _object,
    exp.Array: lambda node: tree.ArrayLiteral(tuple(_expression(element) for element in node.expressions)),
    exp.Exists: lambda node: tree.Subquery("EXISTS", _query(node.this)),
    dialect.Query: lambda node: tree.Subquery("VALUE", _query(node)),
    dialect.Conditional: lambda node: tree.Conditional(
        _expression(node.this), _expression(node.args["true"]), _expression(node.args["false"])
    ),
}
