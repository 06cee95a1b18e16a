"""Filters match what the documentation of Service Bus says they match."""

from typing import Any

import pytest

from devstack.servicebus.broker.description import Rule
from devstack.servicebus.broker.filters import Filters, MessageView
from devstack.servicebus.broker.sql_filter import compile_sql
from devstack.servicebus.broker.sql_nodes import Properties
from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.message import parse

USER: dict[str, Any] = {
    "color": "blue",
    "price": 10,
    "weight": 2.5,
    "hot": True,
    "name": "it's",
    "under_score": "a_c",
}
SYSTEM: dict[str, Any] = {"messageid": "m1", "label": "order", "subject": "order", "sessionid": None}


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("color = 'blue'", True),
        ("COLOR = 'blue'", True),
        ("color = 'Blue'", False),
        ("color <> 'red' AND price >= 10", True),
        ("color != 'blue' OR price < 11", True),
        ("NOT color = 'red'", True),
        ("price = 10.0", True),
        ("price + 5 * 2 = 20", True),
        ("(price + 5) * 2 = 30", True),
        ("price % 3 = 1 AND -price = 0 - 10", True),
        ("price / 0 = 1", False),
        ("hot = TRUE", True),
        ("hot", True),
        ("name = 'it''s'", True),
        ("color IN ('red', 'blue')", True),
        ("color NOT IN ('red', 'blue')", False),
        ("price IN (1, 10)", True),
        ("color LIKE 'b%'", True),
        ("color LIKE '_lue'", True),
        ("color NOT LIKE 'r%'", True),
        ("under_score LIKE 'a!_c' ESCAPE '!'", True),
        ("color LIKE 'b!%' ESCAPE '!'", False),
        ("missing IS NULL", True),
        ("color IS NOT NULL", True),
        ("EXISTS(color) AND NOT EXISTS(missing)", True),
        ("sys.Label = 'order' AND user.color = 'blue'", True),
        ("sys.MessageId = 'm1'", True),
        ("[color] = 'blue'", True),
        ("price > @limit", True),
        # Unknown never matches, and neither does its negation.
        ("missing = 1", False),
        ("NOT missing = 1", False),
        ("missing = 1 OR color = 'blue'", True),
        ("missing = 1 AND color = 'blue'", False),
        ("missing IN (1)", False),
        ("missing LIKE '%'", False),
        ("price = '10'", False),
        ("hot = 1", False),
    ],
)
def test_sql(expression: str, matches: bool) -> None:
    assert compile_sql(expression, {"@limit": 9})(Properties(SYSTEM, USER)) is matches


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "color =",
        "color = 'blue' garbage",
        "color BETWEEN 1 AND 2",
        "newid() = 1",
        "sys.EnqueuedTimeUtc > 1",
        "color = @unknown",
        "color = 'open",
        "color ~ 1",
        "color NOT 1",
        "(" * 40 + "1=1" + ")" * 40,
        "NOT " * 10 + "(",
        "a = " + "1" * 2000,
    ],
)
def test_what_is_not_supported_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="SQL filter"):
        compile_sql(expression, {})


def _view(**application_properties: Any) -> MessageView:
    fields = [e.string("m1"), b"\x40", b"\x40", e.string("order"), b"\x40", e.string("c1")]
    return MessageView(
        parse(
            e.described(0x73, e.encode_list(fields))
            + e.described(0x74, e.encode(application_properties))
            + e.described(0x75, e.binary(b"x"))
        )
    )


def _filters(*rules: Rule) -> Filters:
    return Filters(rules)


def test_a_correlation_filter_needs_every_property_it_names() -> None:
    rule = Rule(
        name="r", kind="correlation", system={"CorrelationId": "c1", "Label": "order"}, properties={"n": 1}
    )

    assert _filters(rule).match(_view(n=1))
    assert not _filters(rule).match(_view(n=2))
    assert not _filters(rule).match(_view(n=True))
    assert not _filters(rule).match(_view())
    assert not _filters(rule.model_copy(update={"system": {"CorrelationId": "c2"}})).match(_view(n=1))


def test_any_rule_that_matches_is_enough_and_no_rule_matches_nothing() -> None:
    red = Rule(name="red", kind="sql", expression="color = 'red'")
    nothing = Rule(name="none", kind="false")
    everything = Rule(name="all", kind="true")

    assert not _filters().match(_view(color="red"))
    assert not _filters(nothing).match(_view(color="red"))
    assert _filters(nothing, red).match(_view(color="red"))
    assert not _filters(nothing, red).match(_view(color="blue"))
    assert _filters(red, everything).match(_view(color="blue"))
    with pytest.raises(ValueError, match="cannot compare"):
        _filters(Rule(name="r", kind="correlation", system={"EnqueuedTimeUtc": "1"}))
