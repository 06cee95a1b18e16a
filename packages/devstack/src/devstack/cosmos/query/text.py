"""A tree written as query text again: parsing it gives the same tree."""

import json
from typing import Any

from devstack.cosmos.query import tree
from devstack.cosmos.storage.epk import UNDEFINED


def query_text(query: tree.Query) -> str:
    parts = ["SELECT"]
    if query.distinct:
        parts.append("DISTINCT")
    if query.top is not None:
        parts.append(f"TOP {expression_text(query.top)}")
    parts.append(_items(query))
    if query.sources:
        parts.append("FROM " + " JOIN ".join(_source(source) for source in query.sources))
    if query.where is not None:
        parts.append(f"WHERE {expression_text(query.where)}")
    if query.group_by:
        parts.append("GROUP BY " + ", ".join(expression_text(key) for key in query.group_by))
    if query.order_by:
        keys = (
            f"{expression_text(key.value)} {'DESC' if key.descending else 'ASC'}" for key in query.order_by
        )
        parts.append("ORDER BY " + ", ".join(keys))
    if query.offset is not None:
        parts.append(f"OFFSET {expression_text(query.offset)}")
    if query.limit is not None:
        parts.append(f"LIMIT {expression_text(query.limit)}")
    return " ".join(parts)


def _items(query: tree.Query) -> str:
    if query.items is None:
        return "*"
    if query.value:
        return f"VALUE {expression_text(query.items[0][1])}"
    return ", ".join(_item(name, value) for name, value in query.items)


def _item(name: str, value: tree.Expression) -> str:
    is_implied = isinstance(value, tree.Property) and value.key == tree.Constant(name)
    text = expression_text(value)
    return text if is_implied or name.startswith("$") else f"{text} AS {name}"


def _source(source: tree.Source) -> str:
    value = expression_text(source.value)
    return f"{source.alias} IN {value}" if source.iterate else f"{value} AS {source.alias}"


def expression_text(expression: tree.Expression) -> str:  # noqa: C901, PLR0911, PLR0912 - a case for each node
    write = expression_text
    match expression:
        case tree.Constant(value):
            return _constant(value)
        case tree.Parameter(name):
            return f"@{name}"
        case tree.Name(name):
            return name
        case tree.Property(base, key):
            return f"{write(base)}[{write(key)}]"
        case tree.Unary(operator, operand):
            return f"({operator} {write(operand)})"
        case tree.Binary(operator, left, right):
            return f"({write(left)} {operator} {write(right)})"
        case tree.In(operand, choices):
            return f"({write(operand)} IN ({', '.join(map(write, choices))}))"
        case tree.Between(operand, low, high):
            return f"({write(operand)} BETWEEN {write(low)} AND {write(high)})"
        case tree.Like(operand, pattern, escape):
            ending = "" if escape is None else f" ESCAPE {_constant(escape)}"
            return f"({write(operand)} LIKE {write(pattern)}{ending})"
        case tree.Conditional(test, chosen, other):
            return f"({write(test)} ? {write(chosen)} : {write(other)})"
        case tree.Call(function, arguments):
            return f"{function}({', '.join(map(write, arguments))})"
        case tree.ObjectLiteral(members):
            return "{" + ", ".join(f"{_constant(name)}: {write(value)}" for name, value in members) + "}"
        case tree.ArrayLiteral(elements):
            return "[" + ", ".join(map(write, elements)) + "]"
        case tree.Subquery(kind, query):
            return f"{'' if kind == 'VALUE' else kind}({query_text(query)})"


def _constant(value: Any) -> str:
    if value is UNDEFINED:
        return "undefined"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return json.dumps(value)
