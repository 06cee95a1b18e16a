"""Builds the AsyncAPI document, with every event, its schema and the parts of its message, for readers' tools."""

from collections.abc import Mapping
from typing import Any

from cosmos_outbox.contracts.schemas import Kind, events_of, file_name
from cosmos_outbox.service import Service

VERSION = "3.0.0"


def document(service: Service, examples: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the document; its schemas are in ``schemas/`` beside it. ``examples``: messages by the event's name."""
    kinds, topic = [*events_of(service)], service.names.topic
    names = [kind.__name__ for kind in kinds]
    shown = {name: {"examples": [example]} for name, example in (examples or {}).items()}
    return {
        "asyncapi": VERSION,
        "info": {
            "title": f"Events of {service.name}",
            "version": "1.0.0",
            "description": "Each message is one event of one aggregate. Other fields than those described may be "
            "there: ignore them. A change that a reader cannot ignore raises the version of the event's schema.",
        },
        "defaultContentType": "application/json",
        "servers": {
            "serviceBus": {
                "host": "{namespace}.servicebus.windows.net",
                "protocol": "amqps",
                "protocolVersion": "1.0",
                "variables": {"namespace": {"description": "The Service Bus namespace of the deployment."}},
            }
        },
        "channels": {
            "events": {
                "address": topic or "{topic}",
                **(
                    {} if topic else {"parameters": {"topic": {"description": "What SERVICEBUS_TOPIC says."}}}
                ),
                "description": "The topic in SERVICEBUS_TOPIC. It drops a message whose MessageId it has seen inside "
                "its window. A subscription needs sessions: one holds all events of an aggregate.",
                "x-service-bus": {
                    "requiresDuplicateDetection": True,
                    "requiresSession": True,
                    "sessionOf": "a bucket of aggregates, or one aggregate",
                },
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
            }
        },
        "operations": {
            "publish": {
                "action": "send",
                "summary": "The relay sends the events of each aggregate in their order, each at least once.",
                "channel": {"$ref": "#/channels/events"},
                "messages": [{"$ref": f"#/channels/events/messages/{name}"} for name in names],
            }
        },
        "components": {
            "messages": {kind.__name__: _message(kind) | shown.get(kind.__name__, {}) for kind in kinds},
            "messageTraits": {
                "event": {
                    "contentType": "application/json",
                    "headers": {"$ref": "#/components/schemas/applicationProperties"},
                    "x-service-bus-properties": {"$ref": "#/components/schemas/brokerProperties"},
                }
            },
            "schemas": {
                "applicationProperties": _APPLICATION_PROPERTIES,
                "brokerProperties": _BROKER_PROPERTIES,
            },
        },
    }


def _message(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.__name__,
        "title": kind.__name__,
        "summary": (kind.__doc__ or "").strip(),
        "traits": [{"$ref": "#/components/messageTraits/event"}],
        "payload": {"$ref": f"./schemas/{file_name(kind)}"},
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "description": description}


_APPLICATION_PROPERTIES = {
    "type": "object",
    "description": "The application properties of every message. CloudEvents 1.0, AMQP binding, binary mode.",
    "properties": {
        "cloudEvents_specversion": _text("The version of CloudEvents.", const="1.0"),
        "cloudEvents_id": _text("The event's id; also of an event that is published once more."),
        "cloudEvents_source": _text("The service. Source and id together name an event everywhere."),
        "cloudEvents_type": _text("The event's name, as in action."),
        "cloudEvents_subject": _text("The id of the aggregate."),
        "cloudEvents_time": _text("When the change happened.", format="date-time"),
        "cloudEvents_dataschema": _text(
            "The URI of the body's schema; only where the setting EVENT_SCHEMAS says where the schemas are published.",
            format="uri",
        ),
        "schemaVersion": _number(
            "The version of the body's schema. Absent from events that were stored before it was introduced."
        ),
        "aggregateType": _text("The type of the aggregate: a topic may carry the events of several types."),
        "sequence": _number("The event's place among all events of its aggregate."),
        "unsequenced": {
            "type": "boolean",
            "const": True,
            "description": "In place of sequence, when an event that others stored has none.",
        },
        "traceparent": _text("The W3C trace context of the request that caused the event."),
        "tracestate": _text(
            "What vendors added to that trace context, at most 512 characters; only with traceparent."
        ),
        "originalMessageId": _text(
            "Only when the event is published once more: the MessageId of its first message, which is the event's id."
        ),
    },
    "required": [
        *(f"cloudEvents_{name}" for name in ("specversion", "id", "source", "type", "subject", "time")),
        "aggregateType",
    ],
}

_BROKER_PROPERTIES = {
    "type": "object",
    "description": "The properties that Service Bus itself knows.",
    "properties": {
        "MessageId": _text("The event's id, or an id of its own when the event is published once more."),
        "SessionId": _text(
            "A bucket of aggregates by a stable hash, such as 32-07: the number of buckets, and which of them. Or the "
            "aggregate's id, where the setting SERVICEBUS_SESSIONS says so. Never take the aggregate from it."
        ),
        "Subject": _text("The event's name, as in action."),
        "ContentType": _text("How the body is written.", const="application/json"),
        "CorrelationId": _text("The x-correlation-id of the request that caused the event."),
    },
    "required": ["MessageId", "SessionId", "Subject", "ContentType"],
}
