"""What a client asks an entity or a rule to be, out of its Atom entry: understood whole, or refused."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from xml.etree import ElementTree as ET

from devstack.servicebus.admin.names import ATOM, CORRELATION_FIELDS, DESCRIPTIONS, INSTANCE, SERVICE_BUS
from devstack.servicebus.amqp.properties import NotSupported, read_duration, read_flag
from devstack.servicebus.broker.description import Rule


@dataclass(frozen=True, slots=True)
class EntityRequest:
    """What a client asks an entity to be."""

    kind: str
    properties: dict[str, str]
    default_rule: Rule | None


def read_entity(body: bytes) -> EntityRequest:
    """Raises ValueError for what is no entry with a description."""
    described = _content(body)
    kinds = {name: kind for kind, name in DESCRIPTIONS.items()}
    kind = kinds.get(_local(described))
    if kind is None:
        raise ValueError(f"an entity cannot be a {_local(described)}")
    properties, default_rule = {}, None
    for element in described:
        name = _local(element)
        if name == "DefaultRuleDescription":
            default_rule = _rule(element)
        elif name == "AuthorizationRules":
            if len(element):
                raise NotSupported("AuthorizationRules are not supported by devstack: there is one key")
        else:
            properties[name] = (element.text or "").strip()
    return EntityRequest(kind, properties, default_rule)


def read_rule(body: bytes) -> Rule:
    """Raises ValueError for what is no entry with a rule."""
    described = _content(body)
    if _local(described) != "RuleDescription":
        raise ValueError("a rule is a RuleDescription")
    return _rule(described)


def _content(body: bytes) -> ET.Element:
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise ValueError("a document type is not accepted")
    try:
        root = ET.fromstring(body)  # noqa: S314 - entities, the danger of XML, were refused above
    except ET.ParseError as error:
        raise ValueError(f"the body is no XML: {error}") from None
    content = root.find(f"{{{ATOM}}}content")
    if content is None or not len(content):
        raise ValueError("the entry has no content")
    return content[0]


def _rule(element: ET.Element) -> Rule:
    rule = _filter(element)
    action = element.find(f"{{{SERVICE_BUS}}}Action")
    if action is None or _type(action) in ("", "EmptyRuleAction"):
        return rule
    if _type(action) != "SqlRuleAction":
        raise NotSupported(f"a {_type(action)} is not supported by devstack")
    return rule.model_copy(
        update={
            "action": _child_text(action, "SqlExpression") or "",
            "action_parameters": _key_values(action, "Parameters"),
        }
    )


def _filter(element: ET.Element) -> Rule:
    name = _child_text(element, "Name") or ""
    given = element.find(f"{{{SERVICE_BUS}}}Filter")
    if given is None:
        return Rule(name=name, kind="true", expression="1=1")
    kind = _type(given)
    expression = _child_text(given, "SqlExpression")
    if kind == "TrueFilter":
        return Rule(name=name, kind="true", expression=expression or "1=1")
    if kind == "FalseFilter":
        return Rule(name=name, kind="false", expression=expression or "1=0")
    if kind == "SqlFilter":
        return Rule(name=name, kind="sql", expression=expression, parameters=_key_values(given, "Parameters"))
    if kind == "CorrelationFilter":
        system = {
            field: text for field in CORRELATION_FIELDS if (text := _child_text(given, field)) is not None
        }
        return Rule(name=name, kind="correlation", system=system, properties=_key_values(given, "Properties"))
    raise NotSupported(f"a {kind} is not supported by devstack")


def _key_values(element: ET.Element, name: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in element.findall(f"{{{SERVICE_BUS}}}{name}/{{{SERVICE_BUS}}}KeyValueOfstringanyType"):
        value = pair.find(f"{{{SERVICE_BUS}}}Value")
        key = _child_text(pair, "Key")
        if key is not None and value is not None:
            values[key] = _typed(_type(value), value.text or "")
    return values


def _typed(kind: str, text: str) -> Any:
    if kind in ("int", "long", "short", "byte"):
        return int(text)
    if kind in ("double", "float", "decimal"):
        return float(text)
    if kind == "boolean":
        return read_flag(text)
    if kind == "duration":
        return read_duration(text)
    if kind == "dateTime":
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    return text


def _type(element: ET.Element) -> str:
    return element.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]


def _child_text(element: ET.Element, name: str) -> str | None:
    child = element.find(f"{{{SERVICE_BUS}}}{name}")
    return None if child is None or child.text is None else child.text


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
