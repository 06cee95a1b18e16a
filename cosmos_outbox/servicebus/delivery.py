"""Converts a message to the inbox's delivery, received by a Functions trigger or by a client of our own."""

from collections.abc import Mapping
from typing import Any

from cosmos_outbox.inbox.message import Delivery

_OF_THE_BROKER = ("DeadLetterReason", "DeadLetterErrorDescription")
"""Properties that the broker adds to a dead letter; the sender's message did not have them."""


def delivery_of(message: Any, body: bytes, subscription: str) -> Delivery:
    """Converts a message of ``azure.functions`` or ``azure.servicebus``, which have equal property names.

    Only a message that the broker has moved has an enqueued sequence number, that of its original queue.
    """
    number = message.enqueued_sequence_number or message.sequence_number or 0
    properties = _plain(message.application_properties or {})
    return Delivery(subscription, str(message.message_id), int(number), body, properties)


def _plain(properties: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns the properties as JSON values; the SDK returns texts as bytes."""
    plain = {str(_text(name)): _text(value) for name, value in properties.items()}
    return {name: value for name, value in plain.items() if name not in _OF_THE_BROKER}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
