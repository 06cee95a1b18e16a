"""A message is the same to the inbox whoever received it: a trigger of the Functions host, or a client of our own."""

from collections.abc import Mapping
from typing import Any

from cosmos_outbox.inbox.set_aside import Delivery

_OF_THE_BROKER = ("DeadLetterReason", "DeadLetterErrorDescription")
"""What the broker adds to a dead letter is not the message's."""


def delivery_of(message: Any, body: bytes, subscription: str) -> Delivery:
    """A message of ``azure.functions`` or of ``azure.servicebus``, which name their properties alike.

    A message that the broker has moved keeps the number of its first place beside its new one, and only then.
    """
    number = message.enqueued_sequence_number or message.sequence_number or 0
    properties = _plain(message.application_properties or {})
    return Delivery(subscription, str(message.message_id), int(number), body, properties)


def _plain(properties: Mapping[Any, Any]) -> dict[str, Any]:
    """Properties that JSON can hold; the SDK gives texts as bytes."""
    plain = {str(_text(name)): _text(value) for name, value in properties.items()}
    return {name: value for name, value in plain.items() if name not in _OF_THE_BROKER}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
