"""A queue's message reaches the function with what the real host passes, in the types in which it passes it."""

import base64
import binascii
import json
from datetime import UTC, datetime

from azure.functions import meta
from azure.storage.queue import QueueMessage

from devstack.functions.invocation import Input

_NEVER = datetime.max.replace(tzinfo=UTC)


class NotEncoded(Exception):
    """The message is not in the encoding that host.json names: nobody here can read it."""


def bind(message: QueueMessage, *, decodes: bool, binary: bool) -> Input:
    """The ``QueueMessage`` of a function. Raises NotEncoded."""
    body = decoded(message.content) if decodes else message.content.encode()
    metadata = {
        "DequeueCount": meta.Datum(json.dumps(message.dequeue_count), "json"),
        "ExpirationTime": _time(message.expires_on),
        "Id": meta.Datum(message.id, "string"),
        "InsertionTime": _time(message.inserted_on),
        "NextVisibleTime": _time(message.next_visible_on),
        "PopReceipt": meta.Datum(message.pop_receipt, "string"),
    }
    try:
        text = body.decode()
    except UnicodeDecodeError:  # the extension then leaves out the text, and a function gets the bytes
        return Input(meta.Datum(body, "bytes"), metadata)
    metadata["QueueTrigger"] = meta.Datum(text, "string")
    return Input(meta.Datum(body, "bytes") if binary else meta.Datum(text, "string"), metadata)


def decoded(content: str) -> bytes:
    """What was sent in base64. Raises NotEncoded."""
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotEncoded from error


def _time(value: datetime | None) -> meta.Datum:
    return meta.Datum(json.dumps((value or _NEVER).astimezone(UTC).isoformat()), "json")
