"""How the relay is, as its leases show it: nothing here is concluded, and each number says what it was read from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cosmos_outbox.cosmos.upkeep.relay_failures import RelayFailure
from cosmos_outbox.outbox.ttl_guard import SHARE
from cosmos_outbox.settings import relay_feed

SILENT_SECONDS = 1.5 * relay_feed.LEASE_EXPIRATION_MS / 1000
"""A lease that was not written for longer than it lasts has lost its owner; half more, as two clocks are compared."""

LATE_SECONDS = 60
"""A change that waits for longer is late: as the alert oldest-waiting has it; a cold start takes less."""


class Holding(StrEnum):
    """Whether a relay works on a lease."""

    YES = "held"
    BY_NOBODY = "no_owner"
    """No relay runs, or none has taken the lease yet."""
    BY_SILENT = "owner_silent"
    """The owner does not renew its lease: it died, or the store does not answer it."""


@dataclass(frozen=True)
class LeaseStatus:
    """One lease of the relay: a physical partition of the container whose feed it reads."""

    lease: str
    owner: str | None
    lag: int
    """Transactions not yet forwarded."""
    oldest_waiting_seconds: int | None
    ttl_used: float
    """The share of EVENT_TTL_SECONDS that the oldest waiting change has used; at 1 events are lost."""
    waiting_since: datetime | None = None
    """When the oldest waiting change was stored, by the store's clock; None: nothing waits."""
    position: int | None = None
    """The LSN up to which all is forwarded; None before the first checkpoint."""
    newest: int | None = None
    """The LSN of the partition's newest transaction; None: not known, because the partition was just split."""
    average_waiting_seconds: float | None = None
    """Of the transactions that wait, by ``SAMPLES`` of them; None: nothing waits, or the partition was just split."""
    silent_seconds: float | None = None
    """Since the lease was last written, which its owner does every few seconds; None: not known."""

    @property
    def held(self) -> Holding:
        """Whether somebody works on it, by what the lease shows."""
        if self.owner is None:
            return Holding.BY_NOBODY
        silent = self.silent_seconds is not None and self.silent_seconds > SILENT_SECONDS
        return Holding.BY_SILENT if silent else Holding.YES


@dataclass(frozen=True)
class RelayStatus:
    """All leases, those that are missing, and how many aggregates of each type are parked."""

    leases: list[LeaseStatus]
    missing: list[str]
    """The leases that should be there and are not: nothing of their partitions is forwarded."""
    parked: Counter[str]
    parked_events: int = 0
    """The events of these aggregates, and documents that belong to no aggregate (at most some of those)."""
    failures: Sequence[RelayFailure] = ()
    """Why pages were not forwarded since the oldest change waits, the newest first; none when nothing waits."""

    @property
    def average_waiting_seconds(self) -> float | None:
        """Of the transactions of all leases that wait; None: none waits, or not known."""
        known = [
            (lease.average_waiting_seconds, max(1, lease.lag))
            for lease in self.leases
            if lease.average_waiting_seconds is not None
        ]
        if not known:
            return None
        return sum(age * weight for age, weight in known) / sum(weight for _, weight in known)

    @property
    def late(self) -> bool:
        """Whether a change waits for longer than LATE_SECONDS, or no lease shows how long."""
        return bool(self.missing) or any(
            (lease.oldest_waiting_seconds or 0) > LATE_SECONDS for lease in self.leases
        )

    @property
    def events_at_risk(self) -> bool:
        """Whether events have used half of their TTL and are not forwarded, or no lease shows how old they are."""
        return bool(self.missing) or any(lease.ttl_used >= SHARE for lease in self.leases)
