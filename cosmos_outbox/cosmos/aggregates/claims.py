"""Of all requests with one key, the first whose claim is created decides: the store refuses every other claim.

So a claim is made by a creation alone, and no read decides that there is none (rule ``created_not_read``).
The claims have a container of their own, which no relay reads. A claim holds digests and an id, nothing personal.
"""

from dataclasses import dataclass
from uuid import UUID

from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.kernel.clock import monotonic, new_id
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.outbox.idempotency import LONGEST_REQUEST_SECONDS, Claim

CLAIM_TYPE = "idempotencyClaim"

_ATTEMPTS = 2
_CLOCK_STEP_SECONDS = 1.0
"""The service tells the times of a write and of an answer in whole seconds."""


@dataclass(frozen=True)
class CosmosClaims:
    """The claims in one container. See :class:`cosmos_outbox.outbox.idempotency.Claims`.

    A creation whose answer was lost is not asked for again here: the caller's repetition finds the claim.
    """

    container: Container
    lifetime_seconds: int
    longest_request_seconds: float = LONGEST_REQUEST_SECONDS

    async def claim(self, key_digest: str, fingerprint: str) -> Claim:
        """The claim of a key. Raises Throttled, Unavailable."""
        try:
            for _ in range(_ATTEMPTS):
                made = await self._make(key_digest, fingerprint)
                if claim := made or await self._find(key_digest):
                    return claim
        except StoreFailed as error:
            raise error.failure.error() from error
        raise Unavailable("the claim of the Idempotency-Key expired at this moment: send the request again")

    async def _make(self, key_digest: str, fingerprint: str) -> Claim | None:
        """The claim, made; None when there is one, which no old read says, but the write itself."""
        usable_until, aggregate_id = self._usable_until(), new_id()
        try:
            await self.container.create(
                _item(key_digest, fingerprint, aggregate_id, ttl=self.lifetime_seconds)
            )
        except StoreFailed as error:
            if error.failure.kind is Kind.CONFLICT:
                return None
            raise
        return Claim(aggregate_id, fingerprint, usable_until, self.lifetime_seconds, is_new=True)

    async def _find(self, key_digest: str) -> Claim | None:
        """The claim that is there; None when it has just expired. Raises Unavailable when it is about to.

        Rule token_of_the_refusal: the container reads with the session token of the refused creation.
        """
        asked_at, usable_until = monotonic(), self._usable_until()
        found = await self.container.read_with_age(key_digest, key_digest)
        if found is None:
            return None
        item, age = found
        left = item["ttl"] - age - _CLOCK_STEP_SECONDS
        if left < self.longest_request_seconds:  # rule life_left
            raise Unavailable(
                "the claim of the Idempotency-Key is about to expire: send the request again afterwards",
                retry_after_seconds=max(left, 0) + 2 * _CLOCK_STEP_SECONDS,
            )
        # Rule lives_as_long: where the setting was lowered, the claim may outlive the tombstone of what it made. So a
        # claim that is older than the setting still leads to the first answer, and no transaction is sent under it.
        if self.lifetime_seconds - age - _CLOCK_STEP_SECONDS < self.longest_request_seconds:
            usable_until = asked_at
        data = item["data"]
        return Claim(UUID(data["aggregateId"]), data["fingerprint"], usable_until, item["ttl"], is_new=False)

    def _usable_until(self) -> float:
        """Counted from before the call that makes or reads the claim, so that the claim outlives this time."""
        return monotonic() + self.longest_request_seconds


def _item(key_digest: str, fingerprint: str, aggregate_id: UUID, *, ttl: int) -> Item:
    return {
        "id": key_digest,
        "partitionKey": key_digest,
        "type": CLAIM_TYPE,
        "data": {"aggregateId": str(aggregate_id), "fingerprint": fingerprint},
        "ttl": ttl,
    }
