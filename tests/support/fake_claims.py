"""Claims in memory, which pass the same contract suite as the real ones; they cannot prove anything about old reads."""

import asyncio
from dataclasses import dataclass, field, replace
from uuid import uuid4

from cosmos_outbox.outbox.claims import LONGEST_REQUEST_SECONDS, Claim
from cosmos_outbox.outbox.errors import Unavailable


@dataclass
class FakeClaims:
    """Each claim by its key's digest, with the time when it was made."""

    lifetime_seconds: int = 600
    longest_request_seconds: float = LONGEST_REQUEST_SECONDS
    made: dict[str, tuple[Claim, float]] = field(default_factory=dict)

    async def claim(self, key_digest: str, fingerprint: str) -> Claim:
        now = asyncio.get_running_loop().time()
        usable_until = now + self.longest_request_seconds
        if key_digest in self.made:
            claim, made_at = self.made[key_digest]
            left = made_at + claim.lifetime_seconds - now
            if left > 0:
                if left < self.longest_request_seconds:
                    raise Unavailable("about to expire", retry_after_seconds=left)
                return replace(claim, usable_until=usable_until, is_new=False)
        claim = Claim(uuid4(), fingerprint, usable_until, self.lifetime_seconds, is_new=True)
        self.made[key_digest] = claim, now
        return claim
