"""A continuation token that says where a list stands by a name or an address is closed: in a log it tells nothing.

The key is kept beside what is listed, made by the process that first needs one. So every process opens the tokens of
the others, and there is no secret to set, to hand on or to lose. Who may read the key may read the entries as well.
"""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cosmos_outbox.kernel.clock import secret
from cosmos_outbox.lists import continuation

_NONCE_BYTES = 12
_KEY_BYTES = 32


def new_key() -> str:
    """A key as a store keeps it."""
    return base64.b64encode(secret(_KEY_BYTES)).decode()


@dataclass
class TokenKey:
    """The key of one store's lists, read once."""

    kept: Callable[[], Awaitable[str]]
    """The key that the store keeps: the first that :func:`new_key` made, whoever stored it."""
    _cipher: AESGCM | None = field(default=None, init=False, repr=False)

    async def close(self, scope: str, position: str) -> str:
        """The position in the list that ``scope`` names, as clients get it. Raises what the store raises."""
        nonce = secret(_NONCE_BYTES)
        closed = (await self._key()).encrypt(nonce, position.encode(), scope.encode())
        return base64.urlsafe_b64encode(nonce + closed).decode().rstrip("=")

    async def open(self, scope: str, token: str) -> str:
        """The position again. Raises what the store raises, and UnknownContinuation: :meth:`close` did not make it."""
        key, both = await self._key(), continuation.decoded(token)
        try:
            return key.decrypt(both[:_NONCE_BYTES], both[_NONCE_BYTES:], scope.encode()).decode()
        except (InvalidTag, ValueError):
            raise continuation.unusable() from None

    async def _key(self) -> AESGCM:
        if self._cipher is None:
            self._cipher = AESGCM(base64.b64decode(await self.kept()))
        return self._cipher
