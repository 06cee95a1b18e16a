"""Encrypts continuation tokens, which contain names or addresses, so that a logged token reveals nothing.

The key is kept beside the entries, created by the first process that needs one. So every process can decrypt the
tokens of the others, and there is no secret to set, pass on or lose. Any reader of the key can read the entries too.
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
    """Returns a new key in the form that a store keeps."""
    return base64.b64encode(secret(_KEY_BYTES)).decode()


@dataclass
class TokenKey:
    """The key of one store's lists, read once."""

    kept: Callable[[], Awaitable[str]]
    """Returns the key that the store keeps: the first of :func:`new_key` that any process stored."""
    _cipher: AESGCM | None = field(default=None, init=False, repr=False)

    async def close(self, scope: str, position: str) -> str:
        """Returns a position in the list that ``scope`` names, encrypted for clients. Raises the store's errors."""
        nonce = secret(_NONCE_BYTES)
        closed = (await self._key()).encrypt(nonce, position.encode(), scope.encode())
        return base64.urlsafe_b64encode(nonce + closed).decode().rstrip("=")

    async def open(self, scope: str, token: str) -> str:
        """Returns the position. Raises UnknownContinuation if :meth:`close` did not make it, and the store's errors."""
        key, both = await self._key(), continuation.decoded(token)
        try:
            return key.decrypt(both[:_NONCE_BYTES], both[_NONCE_BYTES:], scope.encode()).decode()
        except (InvalidTag, ValueError):
            raise continuation.unusable() from None

    async def _key(self) -> AESGCM:
        if self._cipher is None:
            self._cipher = AESGCM(base64.b64decode(await self.kept()))
        return self._cipher
