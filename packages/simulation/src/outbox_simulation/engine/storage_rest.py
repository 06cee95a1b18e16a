"""The part of the storage service's REST API that the SDKs call: turns a request into a call of the account.

(https://learn.microsoft.com/rest/api/storageservices/queue-service-rest-api)
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from email.utils import format_datetime
from urllib.parse import unquote
from xml.sax.saxutils import escape

from multidict import CIMultiDict

from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine.storage_account import (
    FOR_EVER,
    Answers,
    HeldMessage,
    StorageAccount,
    StorageQueueInMemory,
)

Order = Callable[[list[HeldMessage]], Iterable[HeldMessage]]
Wall = Callable[[float], datetime]
"""Returns the service's clock at a time of the loop."""

_NEVER = 2**31
"""The number of seconds in the answer about a message that never expires."""


def queue_of(request: SentRequest) -> str:
    """Returns the queue of a request."""
    return request.path.split("/")[1]


def text_of(request: SentRequest) -> str | None:
    """Returns the text to put into a queue; None: the request puts none."""
    if request.method != "POST":
        return None
    return ET.fromstring(request.body).findtext("MessageText") or ""  # noqa: S314 - from our own SDK


def serve(
    account: StorageAccount, request: SentRequest, now: float, wall: Wall, order: Order
) -> StoreResponse:
    """Carries it out."""
    try:
        return _queue(account.queue(queue_of(request)), request, now, wall, order)
    except Answers as error:
        return failure(error.status, error.code)


def failure(status: int, code: str) -> StoreResponse:
    """Returns the service's answer to a failed request."""
    return _answer(
        status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>", {"x-ms-error-code": code}
    )


def _queue(
    queue: StorageQueueInMemory, request: SentRequest, now: float, wall: Wall, order: Order
) -> StoreResponse:
    query, named = request.query, request.path.split("/")[3:]
    hidden = float(query.get("visibilitytimeout", 0))
    match request.method, named:
        case "POST", []:
            ttl = int(query["messagettl"]) if "messagettl" in query else None
            text = text_of(request) or ""
            put = (
                queue.put(text, now, hidden=hidden)
                if ttl is None
                else queue.put(text, now, ttl=ttl, hidden=hidden)
            )
            return _answer(201, _listed([put], wall, whole=False))
        case "GET", [] if "comp" not in query:
            most = int(query.get("numofmessages", 1))
            got = queue.get(most, now, float(query.get("visibilitytimeout", 30)), order)
            return _answer(200, _listed(got, wall, whole=True))
        case "PUT", [name]:
            held = queue.update(unquote(name), query["popreceipt"], now, hidden)
            shown = {"x-ms-popreceipt": held.receipt, "x-ms-time-next-visible": _date(wall(held.visible))}
            return _answer(204, "", shown)
        case "DELETE", [name]:
            queue.delete(unquote(name), query["popreceipt"], now)
            return _answer(204, "")
        case _, [] if query.get("comp") == "metadata":
            return _answer(200, "", {"x-ms-approximate-messages-count": str(queue.count(now))})
        case _:
            raise NotImplementedError(f"{request.method} {request.path} {dict(query)} of a queue")


_FIRST = "Thu, 01 Jan 2026 00:00:00 GMT"


def _listed(messages: Sequence[HeldMessage], wall: Wall, *, whole: bool) -> str:
    return f"<QueueMessagesList>{''.join(_shown(each, wall, whole=whole) for each in messages)}</QueueMessagesList>"


def _shown(held: HeldMessage, wall: Wall, *, whole: bool) -> str:
    expires = held.since + _NEVER if held.until == float("inf") else held.until
    parts = {
        "MessageId": held.id, "InsertionTime": _date(wall(held.since)), "ExpirationTime": _date(wall(expires)),
        "PopReceipt": held.receipt or "none", "TimeNextVisible": _date(wall(held.visible)),
    }  # fmt: skip
    if whole:
        parts |= {"DequeueCount": str(held.dequeued), "MessageText": escape(held.text)}
    return (
        f"<QueueMessage>{''.join(f'<{name}>{text}</{name}>' for name, text in parts.items())}</QueueMessage>"
    )


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> StoreResponse:
    body = text.encode()
    sent = {
        "Content-Type": "application/xml",
        "Content-Length": str(len(body)),
        "Date": _FIRST,
        **(headers or {}),
    }
    return StoreResponse(status, CIMultiDict(sent), body)


def _date(at: datetime) -> str:
    return format_datetime(at, usegmt=True)


__all__ = ["FOR_EVER", "failure", "queue_of", "serve", "text_of"]
