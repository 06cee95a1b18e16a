"""A subscription's rules have different names, whether the management API or ``$management`` changes them."""

from devstack.servicebus.broker.description import Description, Rule
from devstack.servicebus.broker.filters import check_rule
from devstack.servicebus.codec.errors import ENTITY_ALREADY_EXISTS, NOT_FOUND, AmqpError


def find_rule(description: Description, name: str) -> Rule:
    """Raises :class:`AmqpError` (not found)."""
    for rule in description.rules:
        if rule.name.lower() == name.lower():
            return rule
    raise AmqpError(NOT_FOUND, f"The messaging entity '{description.path}/Rules/{name}' could not be found.")


def with_rule(description: Description, rule: Rule) -> Description:
    """Raises :class:`AmqpError` when the name is taken, ValueError for a filter or action that is not supported."""
    if any(known.name.lower() == rule.name.lower() for known in description.rules):
        raise AmqpError(
            ENTITY_ALREADY_EXISTS,
            f"The messaging entity '{description.path}/Rules/{rule.name}' already exists.",
        )
    check_rule(rule)
    return _having(description, (*description.rules, rule))


def without_rule(description: Description, name: str) -> Description:
    """Raises :class:`AmqpError` (not found)."""
    gone = find_rule(description, name)
    return _having(description, tuple(rule for rule in description.rules if rule is not gone))


def _having(description: Description, rules: tuple[Rule, ...]) -> Description:
    return description.model_copy(update={"rules": rules})
