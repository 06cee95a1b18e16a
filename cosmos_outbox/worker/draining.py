"""A relay that ends says whether all is forwarded that was stored when it began, whoever did it.

For a job that begins every few minutes: ``cosmos-outbox relay --once``. The end of the feed is taken once, at the
start, in every physical partition; what is stored later is the next run's. A lease that another relay holds is waited
for, since only its owner moves on. What a worker does each minute is done once: deadlines first, since they store
events, and the parked events that no operator needs to look at last.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from cosmos_outbox.cosmos.store.fences import fence_everywhere
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.operations.relay_status import Holding, RelayStatus
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.settings import relay_feed
from cosmos_outbox.settings.errors import InfraError, Misconfigured
from cosmos_outbox.wiring.per_process import HasOutbox
from cosmos_outbox.worker import probes
from cosmos_outbox.worker.probes import Address
from cosmos_outbox.worker.relay import RelayHealth, health_of, work

LOOK_SECONDS = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """When a relay ends by itself."""

    once: bool
    """As soon as all is forwarded that was stored at the start."""
    seconds: float | None = None
    """After so long at the latest; None: when nothing has got on for some minutes."""


@dataclass(frozen=True)
class Drained:
    """What a relay did before it ended."""

    forwarded: int
    whole: bool
    """Whether all is forwarded or parked that was stored at the start."""
    reason: str = ""
    """Why not, or what would be left out."""
    status: RelayStatus | None = None
    """At the end; None: the store did not tell."""
    own: int = 0
    """How many leases this relay had."""

    def __str__(self) -> str:
        parts = [f"{self.forwarded} event(s) forwarded by this relay"]
        if self.status is not None:
            others = [lease for lease in self.status.leases if lease.held is Holding.YES]
            if len(others) > self.own:
                parts.append(f"{len(others) - self.own} lease(s) held by others, which forwarded their part")
            if self.status.parked_events:
                parts.append(f"{self.status.parked_events} parked: see cosmos-outbox status")
        told = (
            "all is forwarded that was stored at the start" if self.whole else f"events wait: {self.reason}"
        )
        return f"{told}; {', '.join(parts)}"


async def drain(service: HasOutbox, stop: asyncio.Event, address: Address | None, task: Task) -> Drained:
    """Relay until the task is done, or ``stop`` is set. Raises Misconfigured."""
    health = health_of(service.outbox, asyncio.Event())
    async with service.outbox.resources, probes.answered(address, health):
        return await _Run(health, task, stop).drain()


@dataclass
class _Run:
    health: RelayHealth
    task: Task
    stop: asyncio.Event
    token: str | None = None
    """Of the end of the feed, in all physical partitions."""
    whole: bool = False
    trouble: str = ""
    """What the store said when it was asked."""

    @property
    def patience_seconds(self) -> float:
        """In half of it a dead relay's leases expire, and a page has its time."""
        return 2 * max(relay_feed.LEASE_EXPIRATION_MS / 1000, self.health.outbox.relay.reading_seconds)

    async def drain(self) -> Drained:
        """Relay until the task is done. Raises what ends the work."""
        health = self.health
        working = asyncio.create_task(work(health))
        try:
            ended = await self.until_done(working)
            if self.whole:
                await _try("parked events wait", health.outbox.parking.upkeep)
            own, status = health.processor.owned_leases, await self.status()
        finally:
            health.stop.set()
            await working
        await self.look()  # the page in hand was let end
        reason = "" if self.whole else f"{ended}. {self.trouble_of(own)}. Run the command again"
        return Drained(health.forwarding.forwarded, self.whole, reason, status, len(own))

    async def until_done(self, working: "asyncio.Task[None]") -> str:
        """Returns what ended the run. Raises what ends the work."""
        began = got_on = monotonic()
        seen: object = None
        while not working.done():
            await self.look()
            if self.whole and self.task.once:
                return "all is forwarded"
            now = monotonic()
            if self.task.seconds is not None and now - began >= self.task.seconds:
                return f"{self.task.seconds:g} s are over"
            if self.task.seconds is None and now - got_on >= self.patience_seconds:
                if (positions := await self._positions()) == seen:
                    return "nothing gets on"
                seen, got_on = positions, now
            if await probes.wait(self.stop, LOOK_SECONDS):
                return "the relay was told to stop"
        await working
        return "the relay ended"

    async def look(self) -> None:
        """Look whether all is forwarded."""
        if self.whole or not self.health.started:
            return
        outbox = self.health.outbox
        try:
            if self.token is None:
                if outbox.deadlines is not None:
                    await _try("deadlines wait", outbox.deadlines.meet)
                self.token = await fence_everywhere(outbox.container(outbox.feed.id), outbox.feed)
            passed = await outbox.observer.has_forwarded(self.token)
        except (OutboxError, InfraError) as error:
            self.trouble = str(error)
            return
        self.trouble = ""
        self.whole = passed is True
        if passed is None and not self.health.processor.missing_ranges:
            self.token = None  # a partition was split meanwhile

    def trouble_of(self, own: Collection[str]) -> str:
        """Why events wait, as far as it is known; ``own``: the leases that this relay had."""
        if self.trouble:
            return self.trouble
        forwarding = self.health.forwarding
        if forwarding.waiting:
            return forwarding.reason(own)
        return "Another relay may hold them, or there was no time: cosmos-outbox status tells"

    async def _positions(self) -> object:
        known = await self.status()
        return self.health.forwarding.forwarded, known and [lease.position for lease in known.leases]

    async def status(self) -> RelayStatus | None:
        """Of the relay. None: the store does not tell."""
        try:
            return await self.health.outbox.observer.status()
        except (OutboxError, InfraError):
            return None


async def _try(failing: str, act: Callable[[], Awaitable[object]]) -> None:
    try:
        await act()
    except (OutboxError, Misconfigured) as error:
        _log.warning("%s: %s", failing, error)
