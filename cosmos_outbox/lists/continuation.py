"""Checks continuation tokens before they reach the store.

A client's token carries a digest over the token and its list, so that a damaged token, or a token of another list or
deployment, is refused here. The digest is no secret: a forged token gains nothing, because the query is fixed,
characters that are invalid in a header are refused, and the store checks the rest again. A list sorted by personal
data has tokens that cannot be read or forged (:mod:`cosmos_outbox.lists.listing`).
"""

import base64
import hashlib
import re

from cosmos_outbox.outbox.errors import UnknownContinuation

_DIGEST_BYTES = 16
_LONGEST = 16_384
_IN_A_HEADER = re.compile(rb"[\x20-\x7e]+")


def seal(scope: str, token: str) -> str:
    """Returns the store's token as clients get it; ``scope`` names the list."""
    raw = token.encode()
    return base64.urlsafe_b64encode(_digest(scope, raw) + raw).decode().rstrip("=")


def unseal(scope: str, sealed: str) -> str:
    """Returns the store's token. Raises UnknownContinuation if :func:`seal` did not make ``sealed`` for ``scope``."""
    both = decoded(sealed)
    digest, raw = both[:_DIGEST_BYTES], both[_DIGEST_BYTES:]
    if digest != _digest(scope, raw) or not _IN_A_HEADER.fullmatch(raw):
        raise unusable()
    return raw.decode()


def decoded(token: str) -> bytes:
    """Returns the bytes of a client's token. Raises UnknownContinuation."""
    if len(token) > _LONGEST:
        raise unusable()
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise unusable() from None


def unusable() -> UnknownContinuation:
    """Returns the error for a token that does not belong to this list."""
    return UnknownContinuation("the continuation token does not belong to this list: start again without one")


def _digest(scope: str, raw: bytes) -> bytes:
    return hashlib.blake2b(
        raw, key=hashlib.sha256(scope.encode()).digest(), digest_size=_DIGEST_BYTES
    ).digest()
