"""Only a continuation token that this service made for this list reaches the store.

A client's token carries a digest over the token and its list, so that a damaged token, or a token of another list or
deployment, is refused here. The digest is no secret: a forged token gains nothing, because the query is fixed and the
store checks its own part again.
"""

import base64
import binascii
import hashlib

from outbox.errors import UnknownContinuation

_DIGEST_BYTES = 16
_LONGEST = 16_384


def seal(scope: str, token: str) -> str:
    """The store's token as clients get it; ``scope`` names the list."""
    raw = token.encode()
    return base64.urlsafe_b64encode(_digest(scope, raw) + raw).decode().rstrip("=")


def unseal(scope: str, sealed: str) -> str:
    """The store's token again. Raises UnknownContinuation when :func:`seal` did not make the token for ``scope``."""
    raw = _checked(scope, sealed) if len(sealed) <= _LONGEST else None
    if raw is None:
        raise unusable()
    return raw.decode()


def _checked(scope: str, sealed: str) -> bytes | None:
    try:
        both = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    digest, raw = both[:_DIGEST_BYTES], both[_DIGEST_BYTES:]
    return raw if raw and digest == _digest(scope, raw) else None


def unusable() -> UnknownContinuation:
    """The error for a token that does not belong to this list."""
    return UnknownContinuation("the continuation token does not belong to this list: start again without one")


def _digest(scope: str, raw: bytes) -> bytes:
    return hashlib.blake2b(
        raw, key=hashlib.sha256(scope.encode()).digest(), digest_size=_DIGEST_BYTES
    ).digest()
