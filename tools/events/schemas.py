"""A schema says what a subscriber may rely on, in every message of its version, and nothing more.

Required is what no event of the version lacks: a field that has a default was added later, or may be missing. Limits of
callers' input are left out, since raising one of them must not break a subscriber. Unknown fields are allowed.
"""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.outbox.notice import EventDiscarded
from domain import events
from domain.contact import Contact
from domain.events import ContactEvent

Schema = dict[str, Any]
Kind = type[DomainEvent] | type[EventDiscarded]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_WRITTEN = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, ContactEvent) and kind is not ContactEvent
]
KINDS: list[Kind] = [*dict.fromkeys([*Contact.declared_events(), *_WRITTEN]), EventDiscarded]
"""Every event that a subscriber may get: those that the contact declares, by class or by name, then what it raises."""

_ALWAYS = ("id", "action")
"""They have a default in the model, which makes them when the event is raised: no event lacks them."""

_MEANING = {
    "id": "The event's id, the same in every delivery.",
    "action": "The event's name.",
    "sequence": "The event's place among all events of its contact: 1, 2, 3 ... without a gap.",
    "createdAt": "When the change happened (UTC).",
    "contactId": "The contact that the event is about.",
    "aggregateType": "The type of the aggregate of the discarded event.",
    "aggregateId": "The id of the aggregate of the discarded event.",
    "discardedEventId": "The id of the discarded event; missing when it had no valid one.",
}

_FROM_THE_REQUEST: dict[str, Schema] = {
    "correlationId": {
        "type": "string",
        "description": "The x-correlation-id of the request that caused the event.",
    },
    "traceparent": {"type": "string", "description": "The W3C trace context of that request, if it had one."},
    "tracestate": {"type": "string", "description": "What vendors added to that trace context, if they did."},
}
"""What ``cosmos_outbox/cosmos/aggregates/documents.py`` adds to an event when it is stored."""


class Plain(GenerateJsonSchema):
    """Without titles that only repeat a field's name, and without defaults: an event is read, not made."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def file_name(kind: Kind) -> str:
    """The name of an event's schema: the last part of ``dataschema`` in its messages."""
    return f"{kind.__name__}.v{kind.schema_version}.json"


def schema(kind: Kind) -> Schema:
    """The JSON Schema of an event's body."""
    found = without_limits(kind.model_json_schema(schema_generator=Plain))
    properties: dict[str, Schema] = {
        name: told | ({"description": _MEANING[name]} if name in _MEANING else {})
        for name, told in found["properties"].items()
    }
    if issubclass(kind, DomainEvent):
        properties |= _FROM_THE_REQUEST
    required = [name for name in properties if name in {*_ALWAYS, *found["required"]}]
    head = {"$schema": DIALECT, "$id": file_name(kind), "title": kind.__name__}
    tail = {"$defs": found["$defs"]} if "$defs" in found else {}
    return (
        head
        | {"description": found["description"], "type": "object", "properties": properties}
        | {"required": required, "additionalProperties": True}
        | tail
    )


def without_limits(node: Any) -> Any:
    """A schema without the longest lengths in it."""
    if isinstance(node, dict):
        return {
            name: without_limits(inner)
            for name, inner in node.items()
            if not (name == "maxLength" and isinstance(inner, int))
        }
    return [without_limits(inner) for inner in node] if isinstance(node, list) else node
