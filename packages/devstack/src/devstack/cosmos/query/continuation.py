"""A continuation is good only for the query, the container and the scope that it was given out for; any other is a 400.

It is opaque to clients: JSON in base64 with a digest that binds it to the request.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from devstack.cosmos.protocol.errors import CosmosError, bad_request

_LENGTH = 12

Count = Annotated[int, Field(ge=0)]
Keys = tuple[str | int | float, ...]


@dataclass(frozen=True)
class Position:
    """Where the next page begins: after item ``number`` of the physical partition of ``[minimum, maximum)``.

    ``keys`` are that item's sort keys. ``inner``: results of the next item already returned. ``offset`` and ``limit``
    are what is left of OFFSET and of TOP or LIMIT.
    """

    minimum: str = ""
    maximum: str = ""
    number: Count = 0
    keys: Keys = ()
    inner: Count = 0
    offset: Count = 0
    limit: Count | None = None

    def after(self, number: int, keys: Keys) -> "Position":
        return replace(self, number=number, keys=keys, inner=0)


@dataclass(frozen=True)
class _Token:
    binding: str
    position: Position


_TOKEN = TypeAdapter(_Token)


def digest(*parts: str) -> str:
    """Binds a continuation to what it continues."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:_LENGTH]


def encode(position: Position, binding: str) -> str:
    return base64.urlsafe_b64encode(
        _TOKEN.dump_json(_Token(binding, position), exclude_defaults=True)
    ).decode()


def decode(text: str, binding: str) -> Position:
    """Raises 400 for a text that is no continuation, or one of another query."""
    try:
        token = _TOKEN.validate_json(base64.urlsafe_b64decode(text.encode()))
    except (binascii.Error, ValidationError) as error:
        raise _invalid() from error
    if token.binding != binding:
        raise _invalid()
    return token.position


def _invalid() -> CosmosError:
    return bad_request("Invalid Continuation Token: it was not given out for this query.")
