"""Builds the AsyncAPI document, with every event, its schema and the parts of its message, for readers' tools."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosmos_outbox.contracts.schemas import Kind, events_of, file_name
from cosmos_outbox.service import Service

_TEMPLATE = Path(__file__).with_name("asyncapi.json")
"""The document without what differs between services: the same properties for every message."""


def document(service: Service, examples: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the document; its schemas are in ``schemas/`` beside it. ``examples``: messages by the event's name."""
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
