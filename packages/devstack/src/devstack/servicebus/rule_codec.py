"""A subscription's rules as ``$management`` reads and writes them: maps on the way in, described lists on the way out.

Sources: the AMQP request-response guide of Service Bus (rule operations), and the codecs of the .NET and JavaScript
SDKs, which have the descriptors' numbers.
"""

from typing import Any

from devstack.servicebus.broker.description import Rule
from devstack.servicebus.codec.errors import ARGUMENT_ERROR, AmqpError
from devstack.servicebus.codec.values import Described, Int, Timestamp, ULong

_RULE, _EMPTY_ACTION, _SQL_ACTION = ULong(0x13700000004), ULong(0x13700000005), ULong(0x13700000006)
_SQL, _TRUE, _FALSE, _CORRELATION = (
    ULong(0x1370000006),
    ULong(0x1370000007),
    ULong(0x1370000008),
    ULong(0x1370000009),
)
_COMPATIBILITY = Int(20)
_CORRELATION_FIELDS = (
    ("correlation-id", "CorrelationId"),
    ("message-id", "MessageId"),
    ("to", "To"),
    ("reply-to", "ReplyTo"),
    ("label", "Label"),
    ("session-id", "SessionId"),
    ("reply-to-session-id", "ReplyToSessionId"),
    ("content-type", "ContentType"),
)
"""Keys of a request's map in the order of the list in an answer, and the names of a rule."""


def read_rule(name: str, description: object) -> Rule:
    """A rule from the ``rule-description`` of an ``add-rule``. Raises :class:`AmqpError` for what is none."""
    if not isinstance(description, dict):
        raise AmqpError(ARGUMENT_ERROR, "'rule-description' is a map.")
    action = description.get("sql-rule-action")
    changes = {"name": name, "action": _expression(action) if isinstance(action, dict) else None}
    correlation = description.get("correlation-filter")
    if isinstance(correlation, dict):
        system = {rule: str(correlation[key]) for key, rule in _CORRELATION_FIELDS if correlation.get(key)}
        properties = {
            str(key): _comparable(value) for key, value in (correlation.get("properties") or {}).items()
        }
        return Rule(kind="correlation", system=system, properties=properties, **changes)
    sql = description.get("sql-filter")
    if not isinstance(sql, dict):
        raise AmqpError(ARGUMENT_ERROR, "A rule has a 'sql-filter' or a 'correlation-filter'.")
    return Rule(kind="sql", expression=_expression(sql), **changes)


def write_rule(rule: Rule, created_ms: int) -> dict[str, Any]:
    """An item of the answer to ``enumerate-rules``."""
    action = (
        Described(_EMPTY_ACTION, [])
        if rule.action is None
        else Described(_SQL_ACTION, [rule.action, _COMPATIBILITY])
    )
    description = Described(_RULE, [_written_filter(rule), action, rule.name, Timestamp(created_ms)])
    return {"rule-name": rule.name, "rule-description": description}


def _written_filter(rule: Rule) -> Described:
    if rule.kind == "true":
        return Described(_TRUE, [])
    if rule.kind == "false":
        return Described(_FALSE, [])
    if rule.kind == "sql":
        return Described(_SQL, [rule.expression, _COMPATIBILITY])
    fields = [rule.system.get(name) for _, name in _CORRELATION_FIELDS]
    return Described(_CORRELATION, [*fields, rule.properties])


def _comparable(value: object) -> str | float | bool:
    """A value that a stored rule can hold."""
    if not isinstance(value, str | int | float):
        raise AmqpError(ARGUMENT_ERROR, "A correlation filter compares texts, numbers and booleans only.")
    return value


def _expression(described: dict[object, object]) -> str:
    expression = described.get("expression")
    if not isinstance(expression, str):
        raise AmqpError(ARGUMENT_ERROR, "'expression' is a string.")
    return expression
