"""A continuation is good only for the query, the container and the scope that it was given out for; any other is a 400.

It is opaque to clients: JSON in base64 with a digest that binds it to the request.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from devstack.cosmos.errors import CosmosError, bad_request

_LENGTH: Final = 12


@dataclass(frozen=True)
class Position:
    """Where the next page begins: after item ``number`` of the physical partition of ``[minimum, maximum)``.

    ``keys`` are that item's sort keys. ``inner``: results of the next item already returned. ``offset`` and ``limit`` are
    what is left of OFFSET and of TOP or LIMIT.
    """

    minimum: str = ""
    maximum: str = ""
    number: int = 0
    keys: tuple[Any, ...] = ()
    inner: int = 0
    offset: int = 0
    limit: int | None = None

    def after(self, number: int, keys: tuple[Any, ...]) -> "Position":
        return replace(self, number=number, keys=keys, inner=0)


def digest(*parts: str) -> str:
    """Binds a continuation to what it continues."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:_LENGTH]


def encode(position: Position, binding: str) -> str:
    text = json.dumps({"q": binding, **asdict(position)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode(token: str, binding: str) -> Position:
    """Raises 400 for a token that is not one, or is for another query."""
    try:
        fields = json.loads(base64.urlsafe_b64decode(token.encode()))
        bound = fields.pop("q")
        position = Position(**{**fields, "keys": tuple(fields["keys"])})
        _check_types(position)
    except (binascii.Error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _invalid() from error
    if bound != binding:
        raise _invalid()
    return position


def _check_types(position: Position) -> None:
    counts = (position.number, position.inner, position.offset, position.limit or 0)
    if not isinstance(position.minimum + position.maximum, str) or not all(
        isinstance(count, int) and count >= 0 for count in counts
    ):
        raise ValueError
    if not all(isinstance(key, str | int | float) for key in position.keys):
        raise ValueError


def _invalid() -> CosmosError:
    return bad_request("Invalid Continuation Token: it was not given out for this query.")
