"""A relay that is late is found even when the relay does not run: its status is read from the store.

The age of the oldest change without a checkpoint says how close events are to expiring unforwarded. A timer checks that
age, so that a relay that does not run at all is noticed too.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from changefeed import LeaseLag, estimate_lag
from infra.cosmos.client import ContainerProxy
from infra.cosmos.errors import SDK_ERRORS, classify
from outbox.parking_lot import ParkingLot
from outbox.ttl_guard import SHARE
from outbox.unit_of_work import Clock, utc_now

DEADLINE_SECONDS = 20.0
"""For reading how far all leases are, the SDK's own retries included."""

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class RelayStatus:
    """All leases, and how many aggregates of each type are parked."""

    leases: list[LeaseStatus]
    parked: Counter[str]

    @property
    def late(self) -> bool:
        """Whether events have used half of their TTL and are not forwarded, or no lease shows how old they are."""
        return not self.leases or any(lease.ttl_used >= SHARE for lease in self.leases)


@dataclass(frozen=True)
class RelayObserver:
    """Reads leases and parked aggregates; changes nothing."""

    feed: ContainerProxy
    leases: ContainerProxy
    lot: ParkingLot
    lease_prefix: str
    event_ttl_seconds: int
    clock: Clock = utc_now

    async def status(self) -> RelayStatus:
        """The status; costs one small read for each lease. Raises Unavailable, Throttled or Misconfigured."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                lags = await estimate_lag(self.feed, self.leases, lease_prefix=self.lease_prefix)
        except SDK_ERRORS as error:
            raise classify(error).error() from error
        now = self.clock()
        parked = Counter(marker.aggregate.type for marker in await self.lot.blocked())
        return RelayStatus([self._lease(lag, now) for lag in lags], parked)

    async def watch(self) -> RelayStatus:
        """The status; logs an error when the relay is late. Raises as :meth:`status` does."""
        status = await self.status()
        if not status.leases:
            _log.error(
                "the relay has no lease, so it forwards nothing and the age of the events is not known. Start the "
                "relay; if it runs, its lease documents were deleted: docs/operations/README.md#no-lease"
            )
        for lease in status.leases:
            if lease.ttl_used >= SHARE:
                _log.error(
                    "lease %s: the oldest change has waited %d s, %.0f %% of the events' TTL; at 100 %% events "
                    "are lost. Find out why the relay is late or does not run",
                    lease.lease,
                    lease.oldest_waiting_seconds,
                    100 * lease.ttl_used,
                )
        return status

    def _lease(self, lag: LeaseLag, now: datetime) -> LeaseStatus:
        age = None if lag.waiting_since is None else max(0, int((now - lag.waiting_since).total_seconds()))
        return LeaseStatus(lag.lease_token, lag.owner, lag.lag, age, (age or 0) / self.event_ttl_seconds)
