"""A connection may use an entity only while it holds a valid token that covers the entity's path.

Source: the claims-based security node of Azure Service Bus (AMQP protocol guide) and the form of SAS tokens.
"""

import contextlib
import hashlib
import hmac
import json
from base64 import b64encode, urlsafe_b64decode
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote_plus, unquote_plus

from devstack.servicebus.broker.description import entity_path
from devstack.servicebus.codec.message import (
    ParsedMessage,
    read_application_properties,
    read_properties,
    read_value,
)
from devstack.servicebus.codec.values import Int
from devstack.servicebus.codec.written_message import build_value_message

NODE = "$cbs"
MANAGEMENT_SUFFIX = "/$management"
"""An entity's address with this is its management node."""


@dataclass(frozen=True, slots=True)
class SasKey:
    name: str
    secret: str


DEVELOPMENT_KEY = SasKey("RootManageSharedAccessKey", "SAS_KEY_VALUE")
"""The key of Microsoft's Service Bus emulator."""


BEARER_SECONDS = 3600
"""How long a bearer token without a readable expiry is taken."""


class TokenRefused(Exception):
    """The token is not valid; the message says why."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a valid token allows: the path prefix, empty for the namespace, and until when."""

    path: str
    expires_ms: int

    def covers(self, path: str, now_ms: int) -> bool:
        """An entity and its ``$management`` are one for a token: a client has either authorised before both links."""
        wanted, granted = _entity(path), _entity(self.path)
        inside = not granted or wanted == granted or wanted.startswith(granted + "/")
        return inside and now_ms < self.expires_ms


def check_bearer(token: str, now_ms: int) -> Grant:
    """An Entra token is taken by its form, since only its tenant could prove it; its expiry counts when it can be read.

    Raises :class:`TokenRefused`.
    """
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenRefused("the token is neither a shared access signature nor a JSON web token")
    expires_ms = now_ms + BEARER_SECONDS * 1000
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires_ms = int(claims["exp"]) * 1000 if "exp" in claims else expires_ms
    if expires_ms <= now_ms:
        raise TokenRefused("the token has expired")
    return Grant("", expires_ms)


def check_token(token: str, key: SasKey, now_ms: int) -> Grant:
    """Raises :class:`TokenRefused`."""
    if not token.startswith("SharedAccessSignature "):
        return check_bearer(token.removeprefix("Bearer "), now_ms)
    _, _, rest = token.partition(" ")
    fields = dict(parse_qsl(rest))
    if not {"sr", "sig", "se", "skn"} <= fields.keys():
        raise TokenRefused("the shared access signature lacks a field")
    if fields["skn"] != key.name:
        raise TokenRefused(f"there is no key named '{fields['skn']}'")
    encoded_resource = next(part[3:] for part in rest.split("&") if part.startswith("sr="))
    if not any(
        hmac.compare_digest(fields["sig"], _signature(resource, fields["se"], key))
        for resource in (encoded_resource, quote_plus(unquote_plus(encoded_resource)))
    ):
        raise TokenRefused("the token's signature is not that of the key")
    if not fields["se"].isdigit() or int(fields["se"]) * 1000 <= now_ms:
        raise TokenRefused("the token has expired")
    return Grant(entity_path(fields["sr"]).lower(), int(fields["se"]) * 1000)


def _signature(encoded_resource: str, expiry: str, key: SasKey) -> str:
    digest = hmac.new(key.secret.encode(), f"{encoded_resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return b64encode(digest).decode()


def _entity(path: str) -> str:
    return path.lower().removesuffix(MANAGEMENT_SUFFIX)


def put_token(
    request: ParsedMessage, key: SasKey, now_ms: int, *, refuse: bool
) -> tuple[Grant | None, bytes]:
    """What the token grants, None when it is refused, and the answer to send.

    The request's ``type`` is not looked at: the Python SDK calls a SAS token ``jwt`` too, and Azure takes it.
    Status codes as Service Bus gives them: 202 accepted, 400 not a put-token, 401 not valid.
    """
    properties = read_application_properties(request)
    token = read_value(request)
    if properties.get("operation") != "put-token" or not isinstance(token, str):
        return None, _answer(request, 400, "BadRequest: $cbs takes put-token with a token as its value.")
    if refuse:
        return None, _answer(request, 401, "Unauthorized: a fault was asked for.")
    try:
        grant = check_token(token, key, now_ms)
    except TokenRefused as refusal:
        return None, _answer(request, 401, f"InvalidSignature: {refusal}.")
    path = audience(request)
    if not grant.covers(path, now_ms):
        return None, _answer(request, 401, f"InvalidAudience: the token is not for '{path}'.")
    return Grant(path.lower(), grant.expires_ms), _answer(request, 202, "Accepted")


def answer_not_found(request: ParsedMessage, path: str) -> bytes:
    """The audience names no entity."""
    return _answer(request, 404, f"The messaging entity '{path}' could not be found.")


def audience(request: ParsedMessage) -> str:
    """The path that a put-token asks for."""
    return entity_path(str(read_application_properties(request).get("name", "")))


def _answer(request: ParsedMessage, status: int, description: str) -> bytes:
    correlation: Any = read_properties(request).get("message-id")
    return build_value_message(
        None,
        correlation_id=correlation,
        application_properties={"status-code": Int(status), "status-description": description},
    )
