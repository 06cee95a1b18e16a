"""A rule either matches a message, does not, or cannot be decided; only the first copies the message.

Source: the documentation of subscription rule filters in Azure Service Bus.
"""

from collections.abc import Callable
from typing import Any

from devstack.servicebus.broker.description import Rule
from devstack.servicebus.broker.sql_filter import SYSTEM_PROPERTIES, compile_sql
from devstack.servicebus.broker.sql_nodes import Properties
from devstack.servicebus.codec.message import ParsedMessage, read_application_properties, read_properties

Matcher = Callable[[Properties], bool]


class Filters:
    """The rules of one subscription, compiled."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        """Raises ValueError for a SQL filter outside the supported subset."""
        self._matches_all = any(rule.kind == "true" for rule in rules)
        self._matchers = [_matcher(rule) for rule in rules if rule.kind != "true"]

    def match(self, message: "MessageView") -> bool:
        return self._matches_all or any(matcher(message.properties) for matcher in self._matchers)


class MessageView:
    """A message's properties for filters, decoded when the first filter asks."""

    def __init__(self, parsed: ParsedMessage) -> None:
        self._parsed = parsed
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            system = read_properties(self._parsed)
            user = read_application_properties(self._parsed)
            self._properties = Properties(
                system={name.lower(): system.get(amqp) for name, amqp in SYSTEM_PROPERTIES.items()},
                user={name.lower(): value for name, value in user.items()},
            )
        return self._properties


def check_rule(rule: Rule) -> None:
    """Raises ValueError when the rule's filter is not supported."""
    _matcher(rule)


def _matcher(rule: Rule) -> Matcher:
    if rule.kind == "true":
        return lambda _: True
    if rule.kind == "false":
        return lambda _: False
    if rule.kind == "sql":
        return compile_sql(rule.expression or "", rule.parameters)
    return _correlation(rule)


def _correlation(rule: Rule) -> Matcher:
    system = {name.lower(): value for name, value in rule.system.items()}
    unknown = [name for name in system if name not in {known.lower() for known in SYSTEM_PROPERTIES}]
    if unknown:
        raise ValueError(f"a correlation filter cannot compare '{unknown[0]}'")
    user = {name.lower(): value for name, value in rule.properties.items()}

    def matches(properties: Properties) -> bool:
        return all(_text(properties.system.get(name)) == value for name, value in system.items()) and all(
            _same(properties.user.get(name), value) for name, value in user.items()
        )

    return matches


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _same(stored: Any, wanted: Any) -> bool:
    return isinstance(stored, bool) == isinstance(wanted, bool) and bool(stored == wanted)
