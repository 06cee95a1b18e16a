"""A rule's action is a row of SET and REMOVE statements; each sees what the ones before it did.

``SET name = expression`` and ``REMOVE name``, separated by ``;``, are for application properties and, with ``sys.``,
for those of the message that an action may write. Anything else raises ValueError. Source: the SQL rule action syntax
of Azure Service Bus.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from devstack.servicebus.broker.sql_filter import SYSTEM_PROPERTIES, SqlParser, property_name, tokens
from devstack.servicebus.broker.sql_nodes import Node, Properties

_WRITABLE = {
    name.lower(): name
    for name in SYSTEM_PROPERTIES
    if name != "MessageId"  # the topic has found duplicates by it, before any rule
}


@dataclass(frozen=True, slots=True)
class Changes:
    """What an action does to one message: new values by name, None for a property that is removed."""

    user: dict[str, Any]
    system: dict[str, str | None]


Action = Callable[[Properties], Changes]


@dataclass(frozen=True, slots=True)
class _Statement:
    scope: str
    name: str
    value: Node | None


def compile_action(expression: str, parameters: Mapping[str, Any]) -> Action:
    """A function that returns what becomes of a message. Raises ValueError for what is not supported."""
    parser = SqlParser(tokens(expression), parameters)
    statements = []
    while parser.accept(";") or parser.more:
        if parser.more and parser.peek != ";":
            statements.append(_statement(parser))
    if not statements:
        raise ValueError("a rule action holds at least one SET or REMOVE")

    def apply(properties: Properties) -> Changes:
        changes = Changes({}, {})
        seen = Properties(dict(properties.system), dict(properties.user))
        for statement in statements:
            value = None if statement.value is None else statement.value(seen)
            scope = seen.system if statement.scope == "sys" else seen.user
            assert isinstance(scope, dict)
            scope[statement.name.lower()] = value
            if statement.scope == "sys":
                changes.system[statement.name] = None if value is None else str(value)
            else:
                changes.user[statement.name] = value
        return changes

    return apply


def _statement(parser: SqlParser) -> _Statement:
    if parser.accept("SET"):
        scope, name = property_name(parser.next())
        parser.expect("=")
        value: Node | None = parser.expression()
    elif parser.accept("REMOVE"):
        scope, name = property_name(parser.next())
        value = None
    else:
        raise ValueError("a SQL rule action consists of SET and REMOVE")
    if scope == "sys":
        if name.lower() not in _WRITABLE:
            raise ValueError(f"a SQL rule action cannot write sys.{name}")
        name = _WRITABLE[name.lower()]
    return _Statement(scope, name, value)
