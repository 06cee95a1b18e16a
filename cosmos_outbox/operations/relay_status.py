"""Reads the relay's status from the store, so that a late relay is found even when none runs.

The age of the oldest change without a checkpoint says how close events are to expiring unforwarded. A timer checks that
age, so that a relay that does not run at all is noticed too. The age is known only where there is a lease: a partition
without one is late, and the timer makes the lease again, because the relay function in Azure never does.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from opentelemetry.metrics import get_meter

from cosmos_outbox.cosmos.maintenance.event_list import KeyProgress
from cosmos_outbox.cosmos.relay.forwarding import RelayFailure, RelayFailures
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.client import ContainerProxy, read_account
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, classify
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.kernel.clock import Clock, monotonic, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.outbox.telemetry import SELDOM, GaugeReading
from cosmos_outbox.settings.environment import LEASE_EXPIRATION_MS
from cosmos_outbox.settings.errors import Misconfigured

SILENT_SECONDS = 1.5 * LEASE_EXPIRATION_MS / 1000
"""A lease that was not written for longer than it lasts has lost its owner; half more, as two clocks are compared."""

SHARE = 0.5
"""The share of its TTL after which an unforwarded event needs an operator."""

LATE_SECONDS = 60
"""A change that waits for longer is late: as the alert oldest-waiting has it; a cold start takes less."""


class LeaseState(StrEnum):
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
    silent_seconds: float | None = None
    """The time since the lease was last written, which its owner does every few seconds; None: not known."""

    @property
    def held(self) -> LeaseState:
        """Whether somebody works on it, by what the lease shows."""
        if self.owner is None:
            return LeaseState.BY_NOBODY
        silent = self.silent_seconds is not None and self.silent_seconds > SILENT_SECONDS
        return LeaseState.BY_SILENT if silent else LeaseState.YES

    def view(self) -> Mapping[str, Any]:
        """Returns it as JSON."""
        return {
            "lease": self.lease,
            "owner": self.owner,
            "lag": self.lag,
            "oldestWaitingSeconds": self.oldest_waiting_seconds,
            "state": self.held.value,
            "ttlUsed": round(self.ttl_used, 4),
            "position": self.position,
            "newest": self.newest,
        }


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
    def late(self) -> bool:
        """Whether a change waits for longer than LATE_SECONDS, or no lease shows how long."""
        return bool(self.missing) or any(
            (each.oldest_waiting_seconds or 0) > LATE_SECONDS for each in self.leases
        )

    @property
    def events_at_risk(self) -> bool:
        """Whether events have used half of their TTL and are not forwarded, or no lease shows how old they are."""
        return bool(self.missing) or any(lease.ttl_used >= SHARE for lease in self.leases)

    def view(self) -> Mapping[str, Any]:
        """As JSON, without personal data."""
        return {
            "late": self.late,
            "eventsAtRisk": self.events_at_risk,
            "parkedEvents": self.parked_events,
            "parkedAggregates": dict(self.parked),
            "missingLeases": self.missing,
            "failures": [
                {"reason": each.reason.value, "at": each.at.isoformat(), "detail": each.detail}
                for each in self.failures
            ],
            "leases": [each.view() for each in self.leases],
        }


_backlog, _oldest_waiting, _ttl_used = (GaugeReading(SELDOM) for _ in range(3))
_meter = get_meter("outbox.upkeep")
_meter.create_observable_gauge(
    "outbox.relay.backlog", [_backlog], "{transaction}", "Transactions that are not forwarded"
)
_meter.create_observable_gauge(
    "outbox.relay.oldest_waiting",
    [_oldest_waiting],
    "s",
    "The age of the oldest change that is not forwarded",
)
_meter.create_observable_gauge(
    "outbox.relay.ttl_used", [_ttl_used], "1", "The share of its TTL that the oldest waiting change has used"
)


def report(status: RelayStatus) -> None:
    """Set the relay's gauges, over all leases. A missing lease counts as a TTL that is used up: it is not known."""
    leases = status.leases
    _backlog.set(sum(lease.lag for lease in leases))
    _oldest_waiting.set(max((each.oldest_waiting_seconds or 0 for each in leases), default=0))
    _ttl_used.set(1.0 if status.missing else max((lease.ttl_used for lease in leases), default=0.0))


DEADLINE_SECONDS = 20.0
"""The maximum time to read how far all leases are, with the SDK's own retries."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RelayObserver:
    """Reads leases and parked aggregates. Changes nothing, except that :meth:`watch` makes missing leases again."""

    feed: ContainerProxy
    leases: ContainerProxy
    lot: CosmosParkingLot
    lease_prefix: str
    event_ttl_seconds: int
    failures: RelayFailures
    clock: Clock = utc_now
    mending_patience_seconds: float = LEASE_EXPIRATION_MS / 1000

    async def status(self) -> RelayStatus:
        """The status. Raises Unavailable, Throttled or Misconfigured.

        Costs one small read for each lease, and where something waits a query for the failures. A
        replica that lags may hide what was just stored.
        """
        status = await self._status()
        alone = await self.lot.alone_since_before(self.clock())
        since = [lease.waiting_since for lease in status.leases if lease.waiting_since is not None]
        return replace(
            status,
            parked_events=status.parked_events + len(alone),
            failures=await self._failures(min(since)) if since else (),
        )

    async def _failures(self, since: datetime) -> Sequence[RelayFailure]:
        async with _in_time():
            return await self.failures.since(since)

    async def _status(self) -> RelayStatus:
        """Without the documents that belong to no aggregate: the measurement of each minute does not pay for them."""
        feed = await self._feed_lag()
        now = self.clock()
        blocked = await self.lot.list_blocked()
        parked = Counter(block.aggregate.type for block in blocked)
        leases = [self._lease(lag, now) for lag in feed.leases]
        return RelayStatus(leases, feed.missing, parked, sum(block.waiting for block in blocked))

    async def progress(self, partition_key: Key) -> KeyProgress:
        """How far the relay is where the changes of this key are. Raises as ``status``."""
        feed = await self._feed_lag()
        async with _in_time():
            key = await changefeed.effective_key(self.feed, partition_key)
        for lag in feed.leases:
            if lag.feed_range is not None and lag.feed_range.holds(key):
                part = next((part for part in lag.partitions if part.feed_range.holds(key)), None)
                return KeyProgress(lag.lease_token, lag.waiting_since, part)
        return KeyProgress(None, None)

    async def has_forwarded(self, session_token: str) -> bool | None:
        """Whether all is forwarded or parked that the token, of all physical partitions, knows of.

        None: not known: a lease is missing, or a partition was split since the token was given. Raises as ``status``.
        """
        return (await self._feed_lag(session_token)).is_past(session_token)

    async def oldest_waiting_seconds(self) -> float:
        """The age of the oldest change that is not forwarded, where there is a lease; 0.0: none waits.

        Costs one small read for each lease. Raises as ``status``.
        """
        leases = (await self._feed_lag()).leases
        since = [lag.waiting_since for lag in leases if lag.waiting_since is not None]
        return max(0.0, (self.clock() - min(since)).total_seconds()) if since else 0.0

    async def measure(self) -> RelayStatus:
        """The status, which is reported as metrics too; and what is wrong with the account. Raises as ``status``."""
        status = await self._status()
        await self._look_at_account()
        report(status)
        return status

    async def watch(self) -> RelayStatus:
        """Measures; logs what an operator has to know, and makes missing leases again. Raises as ``status``."""
        status = await self.measure()
        for lease in status.leases:
            if lease.ttl_used >= SHARE:
                _log.error(
                    "lease %s: the oldest change has waited %d s, %.0f %% of the events' TTL; at 100 %% events "
                    "are lost. Find out why the relay is late or does not run",
                    lease.lease,
                    lease.oldest_waiting_seconds,
                    100 * lease.ttl_used,
                )
        if status.missing:
            _log.error(
                "the relay has no lease for partition(s) %s, so it forwards nothing of them and the age of their "
                "events is not known. The lease documents were deleted, or no relay was ever started. A lease that is "
                "missing for %.0f s more is made again: docs/operate/README.md#no-lease",
                ", ".join(status.missing),
                self.mending_patience_seconds,
            )
            await self._mend()
        if await self._nothing_expires():
            _log.warning(
                "nothing in the container expires, since its default TTL is off. If the emergency brake is on, release "
                "it when the relay has caught up; else set the default TTL to -1: docs/operate/emergency-brake.md"
            )
        return status

    async def _look_at_account(self) -> None:
        async with _in_time():
            account = await read_account(self.feed.client_connection)
        try:
            account.check()
        except Misconfigured as error:
            _log.error("%s", error)

    async def _nothing_expires(self) -> bool:
        async with _in_time():
            return (await self.feed.read()).get("defaultTtl") is None

    async def _feed_lag(self, session_token: str | None = None) -> "changefeed.FeedLag":
        prefix = self.lease_prefix
        async with _in_time():
            return await changefeed.estimate_lag(
                self.feed, self.leases, lease_prefix=prefix, session_token=session_token
            )

    async def _mend(self) -> None:
        patience = self.mending_patience_seconds
        clock = changefeed.Clock(utc_now, monotonic)
        async with _in_time(DEADLINE_SECONDS + patience):
            await changefeed.mend_leases(
                self.feed, self.leases, lease_prefix=self.lease_prefix, patience=patience, clock=clock
            )

    def _lease(self, lag: "changefeed.LeaseLag", now: datetime) -> LeaseStatus:
        age, silent = (
            None if time is None else max(0.0, (now - time).total_seconds())
            for time in (lag.waiting_since, lag.stored_at)
        )
        oldest = None if age is None else int(age)
        used, since = (oldest or 0) / self.event_ttl_seconds, lag.waiting_since
        return LeaseStatus(
            lag.lease_token, lag.owner, lag.lag, oldest, used, since, lag.position, lag.newest, silent
        )


@asynccontextmanager
async def _in_time(seconds: float = DEADLINE_SECONDS) -> AsyncIterator[None]:
    """Ends what takes longer, and raises our errors for those of the store."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except SDK_ERRORS as error:
        raise classify(error).error() from error
    except changefeed.FeedRangeGone as error:
        raise Unavailable("the store is splitting the container's partitions: try again later") from error
    except changefeed.ChangeFeedError as error:
        raise Misconfigured(f"the leases of the relay cannot be used: {error}") from error
