"""Runs a relay that ends by itself and reports whether all is forwarded that was stored when it began, by any relay.

For a job that begins every few minutes: ``cosmos-outbox relay --once``. The end of the feed is read once, at the
start, in every physical partition; what is stored later is left to the next run. For a lease that another relay holds
the run waits, since only the lease's owner advances it. The work that a worker repeats each minute is done once:
deadlines first, since they store events, and last the parked events that need no operator.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.operations.relay_status import LeaseState, RelayStatus
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.environment import LEASE_EXPIRATION_MS
from cosmos_outbox.settings.errors import InfraError, Misconfigured
from cosmos_outbox.telemetry.liveness import wait
from cosmos_outbox.worker import probes
from cosmos_outbox.worker.probes import Address
from cosmos_outbox.worker.relay import RelayHealth, health_of, work

LOOK_SECONDS = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Drained:
    """The result of a relay that has ended."""

    forwarded: int
    whole: bool
    """Whether all is forwarded or parked that was stored at the start."""
    reason: str = ""
    """The reason if not, or the work that would be left out."""
    status: RelayStatus | None = None
    """The relay's status at the end; None: the store did not answer."""
    own: int = 0
    """The number of leases that this relay held."""

    def __str__(self) -> str:
        parts = [f"{self.forwarded} event(s) forwarded by this relay"]
        if self.status is not None:
            others = [lease for lease in self.status.leases if lease.held is LeaseState.YES]
            if len(others) > self.own:
                parts.append(f"{len(others) - self.own} lease(s) held by others, which forwarded their part")
            if self.status.parked_events:
                parts.append(f"{self.status.parked_events} parked: see cosmos-outbox status")
        summary = (
            "all is forwarded that was stored at the start" if self.whole else f"events wait: {self.reason}"
        )
        return f"{summary}; {', '.join(parts)}"


async def drain(service: Wired, stop: asyncio.Event, address: Address | None) -> Drained:
    """Relay until all is forwarded, nothing gets on for minutes, or ``stop`` is set. Raises Misconfigured."""
    health = health_of(service, asyncio.Event())
    async with service.resources, probes.answered(address, health):
        return await _Run(health, stop).drain()


@dataclass
class _Run:
    health: RelayHealth
    stop: asyncio.Event
    token: str | None = None
    """The token of the feed's end, in all physical partitions."""
    whole: bool = False
    trouble: str = ""
    """The store's last error."""

    @property
    def patience_seconds(self) -> float:
        """In half of it a dead relay's leases expire, and a page has its time."""
        return 2 * max(LEASE_EXPIRATION_MS / 1000, self.health.wired.relay.relay.reading_seconds)

    async def drain(self) -> Drained:
        """Relays until it is over. Raises the error that ends the work."""
        health = self.health
        working = asyncio.create_task(work(health))
        try:
            ended = await self.until_done(working)
            if self.whole:
                await _try("parked events wait", health.wired.operator.parking.upkeep)
            own, status = health.processor.owned_leases, await self.status()
        finally:
            health.stop.set()
            await working
        await self.look()  # the current page was allowed to end
        reason = "" if self.whole else f"{ended}. {self.trouble_of(own)}. Run the command again"
        return Drained(health.forwarding.forwarded, self.whole, reason, status, len(own))

    async def until_done(self, working: "asyncio.Task[None]") -> str:
        """Returns the reason why the run ended. Raises the error that ends the work."""
        got_on = monotonic()
        seen: object = None
        while not working.done():
            await self.look()
            if self.whole:
                return "all is forwarded"
            if (now := monotonic()) - got_on >= self.patience_seconds:
                status = await self.status()
                reached = (
                    self.health.forwarding.forwarded,
                    status and [each.position for each in status.leases],
                )
                if reached == seen:
                    return "nothing gets on"
                seen, got_on = reached, now
            if await wait(self.stop, LOOK_SECONDS):
                return "the relay was asked to stop"
        await working
        return "the relay ended"

    async def look(self) -> None:
        """Checks whether all is forwarded."""
        if self.whole or not self.health.started:
            return
        wired = self.health.wired
        try:
            if self.token is None:
                if wired.relay.deadlines is not None:
                    await _try("deadlines wait", wired.relay.deadlines.fire_due)
                self.token = await renew_tokens(wired.outbox.stored, wired.outbox.feed)
            passed = await wired.operator.observer.has_forwarded(self.token)
        except (OutboxError, InfraError) as error:
            self.trouble = str(error)
            return
        self.trouble = ""
        self.whole = passed is True
        if passed is None and not self.health.processor.missing_ranges:
            self.token = None  # a partition was split in between

    def trouble_of(self, own: Collection[str]) -> str:
        """Returns why events wait, as far as it is known; ``own``: the leases that this relay held."""
        if self.trouble:
            return self.trouble
        forwarding = self.health.forwarding
        if forwarding.waiting:
            return forwarding.reason(own)
        return "Another relay may hold them, or there was no time: see cosmos-outbox status"

    async def status(self) -> RelayStatus | None:
        """Returns the relay's status; None: the store does not answer."""
        try:
            return await self.health.wired.operator.observer.status()
        except (OutboxError, InfraError):
            return None


async def _try(failing: str, act: Callable[[], Awaitable[object]]) -> None:
    try:
        await act()
    except (OutboxError, Misconfigured) as error:
        _log.warning("%s: %s", failing, error)
