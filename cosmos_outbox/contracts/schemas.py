"""Builds an event's JSON Schema, with what a subscriber may rely on in its version, and a service's AsyncAPI document.

A field is required if no event of the version lacks it: one with a default was added later, or may be missing. Limits
on callers' input are left out, since raising one must not break a subscriber. Unknown fields are allowed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cosmos_outbox.outbox.event import DomainEvent, id_field_of
from cosmos_outbox.outbox.feed import EventDiscarded
from cosmos_outbox.service import Service

Schema = dict[str, Any]
Kind = type[DomainEvent] | type[EventDiscarded]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ALWAYS = ("id", "action")
"""Required although the model has defaults: these set them when the event is raised, so no event lacks them."""

_MEANING = {
    "id": "The event's id, the same in every delivery.",
    "action": "The event's name.",
    "sequence": "The event's place among all events of its aggregate: 1, 2, 3 ... without a gap.",
    "createdAt": "When the change happened (UTC).",
    "aggregateType": "The type of the aggregate of the discarded event.",
    "aggregateId": "The id of the aggregate of the discarded event.",
    "discardedEventId": "The id of the discarded event; missing when it had no valid one.",
}

_FROM_THE_REQUEST: dict[str, Schema] = {
    name: {"type": "string", "description": description}
    for name, description in (
        ("correlationId", "The x-correlation-id of the request that caused the event."),
        ("traceparent", "The W3C trace context of that request, if it had one."),
        ("tracestate", "What vendors added to that trace context, if they did."),
        ("causationId", "The id of the event that a reaction reacted to, if one did."),
        ("causedBy", "A digest of who had signed in to make the request: the same for the same person."),
    )
}
"""The fields that ``cosmos_outbox/cosmos/aggregates/documents.py`` adds to an event when it is stored."""


class Plain(GenerateJsonSchema):
    """Omits titles that only repeat a field's name, and defaults: a subscriber reads events and creates none."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def events_of(service: Service) -> dict[Kind, str]:
    """Returns each event that a subscriber may get, and its aggregate's type; empty for one that is raised by hand."""
    found: dict[Kind, str] = {
        kind: each.aggregate_type for each in service.aggregates for kind in each.declared_events()
    }
    found |= dict.fromkeys(service.events, "") | {EventDiscarded: ""}
    return found


def file_name(kind: Kind) -> str:
    """Returns the file name of an event's schema: the last part of ``dataschema`` in its messages."""
    return f"{kind.__name__}.v{kind.schema_version}.json"


def schema(kind: Kind, of: str = "") -> Schema:
    """Returns the JSON Schema of an event's body. ``of``: the type of its aggregate, if that is known."""
    meaning = _MEANING | ({to_camel(id_field_of(of)): f"The {of} that the event is about."} if of else {})
    found = without_limits(kind.model_json_schema(schema_generator=Plain))
    properties: dict[str, Schema] = {
        name: described | ({"description": meaning[name]} if name in meaning else {})
        for name, described in found["properties"].items()
    }
    if issubclass(kind, DomainEvent):
        properties |= _FROM_THE_REQUEST
    required = [name for name in properties if name in {*_ALWAYS, *found["required"]}]
    head = {"$schema": DIALECT, "$id": file_name(kind), "title": kind.__name__}
    tail = {"$defs": found["$defs"]} if "$defs" in found else {}
    return (
        head
        | {name: found[name] for name in ("description",) if name in found}
        | {"type": "object", "properties": properties}
        | {"required": required, "additionalProperties": True}
        | tail
    )


def without_limits(node: Any) -> Any:
    """Returns a schema without the limits of callers' input: lengths, patterns, the form of an address."""
    if isinstance(node, dict):
        return {
            name: without_limits(inner)
            for name, inner in node.items()
            if not (name in ("minLength", "maxLength") and isinstance(inner, int))
            and not (name == "pattern" and isinstance(inner, str))
            and (name, inner) != ("format", "email")
        }
    return [without_limits(inner) for inner in node] if isinstance(node, list) else node


_TEMPLATE = Path(__file__).with_name("asyncapi.json")
"""The document without what differs between services: the same properties for every message."""


def asyncapi(service: Service, examples: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the AsyncAPI document, for readers' tools; its schemas are in ``schemas/`` beside it.

    ``examples``: messages by the event's name.
    """
    found: dict[str, Any] = json.loads(_TEMPLATE.read_text("utf-8"))
    kinds, channel = [*events_of(service)], found["channels"]["events"]
    names = [kind.__name__ for kind in kinds]
    found["info"]["title"] = f"Events of {service.name}"
    channel["address"] = service.names.topic or "{topic}"
    if service.names.topic:
        del channel["parameters"]
    channel["messages"] = {name: {"$ref": f"#/components/messages/{name}"} for name in names}
    found["operations"]["publish"]["messages"] = [
        {"$ref": f"#/channels/events/messages/{name}"} for name in names
    ]
    shown = {name: {"examples": [example]} for name, example in (examples or {}).items()}
    found["components"]["messages"] = {
        kind.__name__: _message(kind) | shown.get(kind.__name__, {}) for kind in kinds
    }
    return found


def _message(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.__name__,
        "title": kind.__name__,
        "summary": (kind.__doc__ or "").strip(),
        "traits": [{"$ref": "#/components/messageTraits/event"}],
        "payload": {"$ref": f"./schemas/{file_name(kind)}"},
    }
