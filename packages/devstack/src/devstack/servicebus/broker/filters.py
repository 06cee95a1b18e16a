"""A rule either matches a message, does not, or cannot be decided; only the first copies the message.

The rules without an action make one copy together, each rule with an action one of its own. Source: the documentation
of subscription rule filters and actions in Azure Service Bus.
"""

from collections.abc import Callable
from typing import Any

from devstack.servicebus.broker.description import Rule
from devstack.servicebus.broker.sql_action import Action, compile_action
from devstack.servicebus.broker.sql_filter import SYSTEM_PROPERTIES, compile_sql
from devstack.servicebus.broker.sql_nodes import Properties
from devstack.servicebus.codec.message import (
    ParsedMessage,
    parse,
    read_application_properties,
    read_properties,
)
from devstack.servicebus.codec.written_message import with_application_properties, with_properties

Matcher = Callable[[Properties], bool]


class Filters:
    """The rules of one subscription, compiled."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        """Raises ValueError for a SQL filter or action outside the supported subset."""
        plain = [rule for rule in rules if rule.action is None]
        self._matches_all = any(rule.kind == "true" for rule in plain)
        self._matchers = [_matcher(rule) for rule in plain if rule.kind != "true"]
        self._acting = [(_matcher(rule), _action(rule)) for rule in rules if rule.action is not None]

    def match(self, message: "MessageView") -> bool:
        """Whether a rule without an action matches."""
        return self._matches_all or any(matcher(message.properties) for matcher in self._matchers)

    def copies(self, message: "MessageView") -> list[ParsedMessage]:
        """What the subscription gets of a message."""
        copies = [message.parsed] if self.match(message) else []
        for matcher, action in self._acting:
            if matcher(message.properties):
                copies.append(_changed(message, action))
        return copies


class MessageView:
    """A message's properties for filters, decoded when the first filter asks."""

    def __init__(self, parsed: ParsedMessage) -> None:
        self.parsed = parsed
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            system = read_properties(self.parsed)
            user = read_application_properties(self.parsed)
            self._properties = Properties(
                system={name.lower(): system.get(amqp) for name, amqp in SYSTEM_PROPERTIES.items()},
                user={name.lower(): value for name, value in user.items()},
            )
        return self._properties


def check_rule(rule: Rule) -> None:
    """Raises ValueError when the rule's filter or action is not supported."""
    _matcher(rule)
    if rule.action is not None:
        _action(rule)


def _action(rule: Rule) -> Action:
    return compile_action(rule.action or "", rule.action_parameters)


def _changed(message: "MessageView", action: Action) -> ParsedMessage:
    changes = action(message.properties)
    parsed = message.parsed
    if changes.user:
        spelled = {name.lower(): name for name in read_application_properties(parsed)}
        user = {spelled.get(name.lower(), name): value for name, value in changes.user.items()}
        removed = [name for name, value in user.items() if value is None]
        kept = {name: value for name, value in user.items() if value is not None}
        parsed = parse(with_application_properties(parsed, kept, removed))
    if changes.system:
        system = {SYSTEM_PROPERTIES[name]: value for name, value in changes.system.items()}
        parsed = parse(with_properties(parsed, system))
    return parsed


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
