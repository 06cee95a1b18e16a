"""An AsyncAPI document may follow another only if who reads by the old one still gets each message, and knows it.

============  ======================================================================================================
``address``   A channel is gone, or has another address.
``moved``     A message is not in the channel any more in which it was.
``broker``    What subscriptions must be like is told otherwise (``x-service-bus``), or the protocol, or the server.
``content``   A body is of another content type.
the rest      Headers, and the broker's own properties, follow the rules of ``breaks``.
============  ======================================================================================================

Bodies have schemas of their own. That an event is gone is told of its schema.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from cosmos_outbox.contracts.alternatives import as_text, resolved
from cosmos_outbox.contracts.breaks import breaks_inside

Document = Mapping[str, Any]

_OF_A_MESSAGE = {"headers": "headers", "x-service-bus-properties": "properties"}
_SCHEMALESS: Document = {"type": "object"}


def channel_breaks(old: Document, new: Document) -> list[str]:
    """What of the new document breaks a reader by the old one, a line each. Raises ValueError: a reference is wrong."""
    return [*dict.fromkeys([*_servers(old, new), *_channels(old, new), *_messages(old, new)])]


def _servers(old: Document, new: Document) -> Iterator[str]:
    for name in old.get("servers", {}):
        before, after = (_found(each.get("servers", {}).get(name), each) for each in (old, new))
        for what in ("host", "protocol", "protocolVersion"):
            if before.get(what) != after.get(what):
                yield f"server {name}: {what} {_was(before, after, what)} (broker)"


def _channels(old: Document, new: Document) -> Iterator[str]:
    for name in old.get("channels", {}):
        before, after = (_found(each.get("channels", {}).get(name), each) for each in (old, new))
        if not after:
            yield f"channel {name} is gone (address)"
            continue
        if before.get("address") != after.get("address") and not before.get(
            "parameters"
        ):  # else it was not told
            yield f"channel {name}: its address {_was(before, after, 'address')} (address)"
        told, tells = before.get("x-service-bus", {}), after.get("x-service-bus", {})
        for what in told:
            if as_text(told[what]) != as_text(tells.get(what)):
                yield f"channel {name}: {what} {_was(told, tells, what)} (broker)"
        anywhere = {
            message for each in new["channels"].values() for message in _found(each, new).get("messages", {})
        }
        for message in before.get("messages", {}):
            if message not in after.get("messages", {}) and message in anywhere:
                yield f"{message} is in another channel than {name} (moved)"


def _messages(old: Document, new: Document) -> Iterator[str]:
    for name, before, after in _both(old, new):
        told, tells = before.get("contentType"), after.get("contentType")
        if told != tells:
            yield f"{name}: the content type {_was(before, after, 'contentType')} (content)"
        for part, meaning in _OF_A_MESSAGE.items():
            schemas = before.get(part, _SCHEMALESS), after.get(part, _SCHEMALESS)
            yield from (f"{name}: {each}" for each in breaks_inside(schemas, (old, new), meaning))


def _both(old: Document, new: Document) -> Iterator[tuple[str, Document, Document]]:
    """The messages that are in both documents, each with what its traits tell of it; alike ones once."""
    before, after = (each.get("components", {}).get("messages", {}) for each in (old, new))
    known = set[str]()
    for name in sorted(before.keys() & after.keys()):
        one, other = _whole(before[name], old), _whole(after[name], new)
        parts = as_text(
            [[each.get(part) for part in ("contentType", *_OF_A_MESSAGE)] for each in (one, other)]
        )
        if parts not in known:
            known.add(parts)
            yield name, one, other


def _whole(message: Document, document: Document) -> Document:
    """A message wins over its traits, and the document's content type stands in for its own."""
    message = _found(message, document)
    told: dict[str, Any] = {"contentType": document.get("defaultContentType")}
    for trait in message.get("traits", ()):
        told |= _found(trait, document)
    return {**told, **message}


def _found(node: Any, document: Document) -> Document:
    """What a reference inside the document points to; nothing, where there is no such node. Raises ValueError."""
    found = resolved(node or {}, document)
    return found if isinstance(found, Mapping) else {}


def _was(before: Document, after: Document, what: str) -> str:
    return f"is {as_text(after.get(what))} now, and was {as_text(before.get(what))}"
