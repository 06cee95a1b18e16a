"""The port of claims: while a claim lives, its key stands for one aggregate and one request of one caller.

The claim decides which id the aggregate gets, before the aggregate is stored. So a request that was repeated, or whose
process died before its transaction, meets the same id. The id is made with the claim, a new UUID each time (rule
``fresh_id``): a key that is used again after its claim expired never brings an id back.
"""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

LONGEST_REQUEST_SECONDS = 30.0
"""The longest that a request with a key may take from its claim to the end of its last transaction."""


@dataclass(frozen=True)
class Claim:
    """What a key stands for."""

    aggregate_id: UUID
    fingerprint: str
    """A digest of the request that made the claim."""
    usable_until: float
    """By the monotonic clock: no transaction under this claim is sent so late that it could end after this time
    (rule ``deadline``)."""
    lifetime_seconds: int
    """How long the claim lives after it was made. What is stored under the claim lives as long, counted from later on
    (rule ``lives_as_long``)."""
    is_new: bool
    """The claim was made by this call. False proves nothing: the answer that said so may have been lost."""


class Claims(Protocol):
    """The claims of one service."""

    async def claim(self, key_digest: str, fingerprint: str) -> Claim:
        """Make the claim of a key, unless there is one; then that one, whatever its fingerprint is.

        Raises:
            Unavailable: the claim that is there is about to expire, or expired twice; or the store could not be used.
            Throttled: the store asks to slow down.
        """
