"""A continuation token that says where a list stands by a name or an address is closed: in a log it tells nothing.

The key is an item beside what is listed, made by the process that first needs one. So every process opens the tokens of
the others, and there is no secret to set, to hand on or to lose. Who may read the key may read the entries as well.
"""

import base64
import os
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cosmos_outbox.cosmos.store import continuation
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import KEEP_FOR_EVER, Item

ITEM = "continuation-key"
"""The id and the partition of the key. No aggregate has it, their ids are UUIDs."""

_NONCE_BYTES = 12
_KEY_BITS = 256


@dataclass
class TokenKey:
    """The key of one container's lists, read once."""

    container: Container
    _cipher: AESGCM | None = field(default=None, init=False)

    async def close(self, scope: str, position: str) -> str:
        """The position in the list that ``scope`` names, as clients get it. Raises StoreFailed."""
        nonce = os.urandom(_NONCE_BYTES)
        closed = (await self._key()).encrypt(nonce, position.encode(), scope.encode())
        return base64.urlsafe_b64encode(nonce + closed).decode().rstrip("=")

    async def open(self, scope: str, token: str) -> str:
        """The position again. Raises StoreFailed, and UnknownContinuation for what :meth:`close` has not made."""
        key, both = await self._key(), continuation.decoded(token)
        try:
            return key.decrypt(both[:_NONCE_BYTES], both[_NONCE_BYTES:], scope.encode()).decode()
        except (InvalidTag, ValueError):
            raise continuation.unusable() from None

    async def _key(self) -> AESGCM:
        if self._cipher is None:
            item = await self.container.read(ITEM, ITEM) or await self._make()
            self._cipher = AESGCM(base64.b64decode(item["key"]))
        return self._cipher

    async def _make(self) -> Item:
        key = base64.b64encode(AESGCM.generate_key(_KEY_BITS)).decode()
        item = {"id": ITEM, "partitionKey": ITEM, "type": "continuationKey", "key": key, "ttl": KEEP_FOR_EVER}
        try:
            await self.container.create(item)
        except StoreFailed as error:  # another process made one, or an earlier attempt of this one did
            if error.failure.kind is not Kind.CONFLICT:
                raise
        # The stored one counts, whoever made it.
        stored = await self.container.read(ITEM, ITEM)
        if stored is None:
            raise StoreFailed(Failure(Kind.BEHIND, "the key that was just made cannot be read"))
        return stored
