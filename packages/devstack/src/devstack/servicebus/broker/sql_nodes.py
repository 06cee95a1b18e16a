"""The values of a SQL filter's parts: true, false, or unknown (None) where a property is missing or of another kind.

Source: the SQL filter syntax of Azure Service Bus.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Properties:
    """What a filter sees of a message; names in lower case, since filters ignore case."""

    system: Mapping[str, Any]
    user: Mapping[str, Any]


Node = Callable[[Properties], Any]


def constant(value: Any) -> Node:
    return lambda _: value


def exists(node: Node) -> Node:
    return lambda properties: node(properties) is not None


def is_null(node: Node) -> Node:
    return lambda properties: node(properties) is None


def negated(node: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        value = node(properties)
        return None if value is None else value is not True

    return evaluate


def both(left: Node, right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        values = (left(properties), right(properties))
        if any(value is False for value in values):
            return False
        return None if None in values else True

    return evaluate


def either(left: Node, right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        values = (left(properties), right(properties))
        if any(value is True for value in values):
            return True
        return None if None in values else False

    return evaluate


def compared(left: Node, compare: Callable[[Any, Any], bool], right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        first, second = left(properties), right(properties)
        if first is None or second is None or _family(first) is not _family(second):
            return None
        return compare(first, second)

    return evaluate


def computed(left: Node, compute: Callable[[Any, Any], Any], right: Node) -> Node:
    def evaluate(properties: Properties) -> Any:
        first, second = left(properties), right(properties)
        if first is None or second is None or _family(first) is not _family(second):
            return None
        try:
            return compute(first, second)
        except (ZeroDivisionError, TypeError, OverflowError):
            return None

    return evaluate


def like(left: Node, pattern: Node, escape: Node | None) -> Node:
    def evaluate(properties: Properties) -> Any:
        value, wanted = left(properties), pattern(properties)
        mark = escape(properties) if escape else None
        if not isinstance(value, str) or not isinstance(wanted, str):
            return None
        return re.fullmatch(_regex(wanted, mark), value, re.DOTALL) is not None

    return evaluate


def _regex(pattern: str, escape: str | None) -> str:
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, "")))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return "".join(parts)


def _family(value: Any) -> type:
    """Values compare within their family only: numbers, booleans, text, and each other type by itself."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return str if isinstance(value, str) else type(value)
