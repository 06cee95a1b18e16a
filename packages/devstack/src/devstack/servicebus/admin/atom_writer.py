"""Entities and rules as Atom entries, in the very form in which the service writes them.

The JavaScript client reads element names and ``i:type`` as text: each namespace is the default one of its element,
declared there, and only ``i``, ``d2p1`` and ``d6p1`` are prefixes. Tags are therefore written as they are, not as
qualified names. Source: the Service Bus management API (service ``servicebus/connect`` schema of 2010/10), version
2021-05 and 2024-05, and the serializers of the administration clients for JavaScript (7.9.5) and .NET.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from devstack.servicebus.admin.names import (
    ATOM,
    CORRELATION_FIELDS,
    COUNTS,
    DESCRIPTIONS,
    INSTANCE,
    SCHEMA,
    SERVICE_BUS,
)
from devstack.servicebus.amqp.properties import written
from devstack.servicebus.broker.description import Description, Rule
from devstack.servicebus.broker.entity import Entity
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.topic import Topic

_DESCRIBED = {"xmlns": SERVICE_BUS, "xmlns:i": INSTANCE}


def write_entity(entity: Entity, url: str, name: str) -> bytes:
    return _document(_entity_entry(entity, url, name))


def write_entities(items: list[tuple[Entity, str, str]], title: str, following: str | None) -> bytes:
    """A feed of entities, each with its address and name, and a link to the next page."""
    return _feed([_entity_entry(entity, url, name) for entity, url, name in items], title, following)


def write_rule(rule: Rule, url: str, created_ms: int) -> bytes:
    return _document(_rule_entry(rule, url, created_ms))


def write_rules(items: list[tuple[Rule, str]], created_ms: int, following: str | None) -> bytes:
    return _feed([_rule_entry(rule, url, created_ms) for rule, url in items], "Rules", following)


def write_error(status: int, detail: str) -> bytes:
    error = ET.Element("Error")
    ET.SubElement(error, "Code").text = str(status)
    ET.SubElement(error, "Detail").text = detail
    return _document(error)


def _document(element: ET.Element) -> bytes:
    document: bytes = ET.tostring(element, encoding="utf-8")
    return document


def _feed(entries: list[ET.Element], title: str, following: str | None) -> bytes:
    feed = ET.Element("feed", {"xmlns": ATOM})
    ET.SubElement(feed, "title", type="text").text = title
    ET.SubElement(feed, "updated").text = _time(0)
    ET.SubElement(feed, "link", rel="self", href="")
    if following is not None:
        ET.SubElement(feed, "link", rel="next", href=following)
    feed.extend(entries)
    return _document(feed)


def _entry(title: str, url: str, created_ms: int, updated_ms: int) -> tuple[ET.Element, ET.Element]:
    entry = ET.Element("entry", {"xmlns": ATOM})
    ET.SubElement(entry, "id").text = url
    ET.SubElement(entry, "title", type="text").text = title
    ET.SubElement(entry, "published").text = _time(created_ms)
    ET.SubElement(entry, "updated").text = _time(updated_ms)
    ET.SubElement(entry, "link", rel="self", href=url)
    return entry, ET.SubElement(entry, "content", type="application/xml")


def _entity_entry(entity: Entity, url: str, name: str) -> ET.Element:
    description = entity.description
    entry, content = _entry(name, url, description.created_ms, description.updated_ms)
    described = ET.SubElement(content, DESCRIPTIONS[description.kind], _DESCRIBED)
    for key, value in (written(description) | _runtime(entity)).items():
        ET.SubElement(described, key).text = value
    counts = ET.SubElement(described, "CountDetails", {"xmlns:d2p1": COUNTS})
    for key, number in _counts(entity).items():
        ET.SubElement(counts, f"d2p1:{key}").text = str(number)
    return entry


def _runtime(entity: Entity) -> dict[str, str]:
    description = entity.description
    queue = entity.queue
    values = {
        "CreatedAt": _time(description.created_ms),
        "UpdatedAt": _time(description.updated_ms),
        "AccessedAt": _time(description.updated_ms),
        "EntityAvailabilityStatus": "Available",
    }
    if isinstance(entity.node, Topic):
        values["SubscriptionCount"] = str(len(entity.node.subscriptions))
        values["SizeInBytes"] = str(entity.node.size)
        return values
    dead = _dead_letter(queue)
    values["MessageCount"] = str(queue.message_count + dead.message_count)
    if description.kind == "queue":
        values["SizeInBytes"] = str(queue.size + dead.size)
    return values


def _counts(entity: Entity) -> dict[str, int]:
    queue = entity.queue
    is_topic = isinstance(entity.node, Topic)
    return {
        "ActiveMessageCount": 0 if is_topic else queue.active_count,
        "DeadLetterMessageCount": 0 if is_topic else _dead_letter(queue).message_count,
        "ScheduledMessageCount": queue.scheduled_count,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": 0,
    }


def _dead_letter(queue: Queue) -> Queue:
    assert queue.dead_letter is not None
    return queue.dead_letter


def _rule_entry(rule: Rule, url: str, created_ms: int) -> ET.Element:
    entry, content = _entry(rule.name, url, created_ms, created_ms)
    described = ET.SubElement(content, "RuleDescription", _DESCRIBED)
    kinds = {
        "true": "TrueFilter",
        "false": "FalseFilter",
        "sql": "SqlFilter",
        "correlation": "CorrelationFilter",
    }
    given = ET.SubElement(described, "Filter", {"i:type": kinds[rule.kind]})
    if rule.kind == "correlation":
        for field in CORRELATION_FIELDS:
            if field in rule.system:
                ET.SubElement(given, field).text = rule.system[field]
        _write_key_values(given, "Properties", rule.properties)
    else:
        ET.SubElement(given, "SqlExpression").text = rule.expression
        ET.SubElement(given, "CompatibilityLevel").text = "20"
        _write_key_values(given, "Parameters", rule.parameters)
    if rule.action is None:
        ET.SubElement(described, "Action", {"i:type": "EmptyRuleAction"})
    else:
        action = ET.SubElement(described, "Action", {"i:type": "SqlRuleAction"})
        ET.SubElement(action, "SqlExpression").text = rule.action
        ET.SubElement(action, "CompatibilityLevel").text = "20"
        _write_key_values(action, "Parameters", rule.action_parameters)
    ET.SubElement(described, "Name").text = rule.name
    ET.SubElement(described, "CreatedAt").text = _time(created_ms)
    return entry


def _write_key_values(parent: ET.Element, name: str, values: Mapping[str, Any]) -> None:
    if not values:
        return
    element = ET.SubElement(parent, name)
    for key, value in values.items():
        pair = ET.SubElement(element, "KeyValueOfstringanyType")
        ET.SubElement(pair, "Key").text = key
        kind, text = _xml_value(value)
        attributes = {"i:type": f"d6p1:{kind}", "xmlns:d6p1": SCHEMA}
        ET.SubElement(pair, "Value", attributes).text = text


def _xml_value(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, int):
        return "int" if -(2**31) <= value < 2**31 else "long", str(value)
    if isinstance(value, float):
        return "double", repr(value)
    return "string", str(value)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def description_path(description: Description) -> str:
    """The last part of an entity's path: its name in entries."""
    return description.path if description.kind != "subscription" else description.path.rpartition("/")[2]
