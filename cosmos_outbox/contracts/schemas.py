"""A schema says what a subscriber may rely on, in every message of its version, and nothing more.

Required is what no event of the version lacks: a field that has a default was added later, or may be missing. Limits of
callers' input are left out, since raising one of them must not break a subscriber. Unknown fields are allowed.
"""

from typing import Any

from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cosmos_outbox.outbox.event import DomainEvent, id_field_of
from cosmos_outbox.outbox.feed import EventDiscarded
from cosmos_outbox.wiring.service import Service

Schema = dict[str, Any]
Kind = type[DomainEvent] | type[EventDiscarded]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ALWAYS = ("id", "action")
"""They have a default in the model, which makes them when the event is raised: no event lacks them."""

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
"""What ``cosmos_outbox/cosmos/aggregates/documents.py`` adds to an event when it is stored."""


class Plain(GenerateJsonSchema):
    """Without titles that only repeat a field's name, and without defaults: an event is read, not made."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def events_of(service: Service) -> dict[Kind, str]:
    """Every event that a subscriber may get, with the type of its aggregate; of one that is raised by hand: nothing.

    Raises ValueError: two have one name.
    """
    found: dict[Kind, str] = {
        kind: each.aggregate_type for each in service.aggregates for kind in each.declared_events()
    }
    found |= dict.fromkeys(service.events, "") | {EventDiscarded: ""}
    names = [kind.__name__ for kind in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"two events of {service.name} are named {twice[0]}, and have one schema: give one of them another name, "
            "or take it out of the service's events where an aggregate declares it"
        )
    return found


def file_name(kind: Kind) -> str:
    """The name of an event's schema: the last part of ``dataschema`` in its messages."""
    return f"{kind.__name__}.v{kind.schema_version}.json"


def schema(kind: Kind, of: str = "") -> Schema:
    """The JSON Schema of an event's body. ``of``: the type of its aggregate, if that is known."""
    meaning = _MEANING | ({to_camel(id_field_of(of)): f"The {of} that the event is about."} if of else {})
    found = without_limits(kind.model_json_schema(schema_generator=Plain))
    properties: dict[str, Schema] = {
        name: told | ({"description": meaning[name]} if name in meaning else {})
        for name, told in found["properties"].items()
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
    """A schema without what only callers' input must be: the lengths, the patterns, the form of an address."""
    if isinstance(node, dict):
        return {
            name: without_limits(inner)
            for name, inner in node.items()
            if not (name in ("minLength", "maxLength") and isinstance(inner, int))
            and not (name == "pattern" and isinstance(inner, str))
            and (name, inner) != ("format", "email")
        }
    return [without_limits(inner) for inner in node] if isinstance(node, list) else node
