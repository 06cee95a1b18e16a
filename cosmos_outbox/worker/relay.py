"""Runs the relay outside Functions, for containers: ``cosmos-outbox relay``.

It reads the same settings, reads the feed in the same way and keeps the same leases as the relay function: each can
replace the other without losing an event or the position in the feed, and several workers share the work. A batch that
cannot be delivered is read again until it is delivered. A stop waits for the running batch for some seconds, then
leaves the batch to the next worker.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import field

from cosmos_outbox.cosmos.aggregates.deadlines import BEAT_SECONDS
from cosmos_outbox.cosmos.relay.forwarding import why_of
from cosmos_outbox.cosmos.relay.pages import VerifiedPage
from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, classify
from cosmos_outbox.kernel.clock import machine, monotonic, new_id, randomness, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.errors import NotDelivered, OutboxError
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.environment import LEASE_ACQUIRE_MS, LEASE_EXPIRATION_MS, LEASE_RENEW_MS
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.telemetry.liveness import wait
from cosmos_outbox.worker import probes
from cosmos_outbox.worker.probes import DRAIN_SECONDS, Address, WorkerHealth, every

UPKEEP_PAUSE_SECONDS = 60.0
"""The interval at which the relay checks its progress and the parked events that need no operator."""

_SENDS_OF_A_PAGE = 5

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0

_log = logging.getLogger(__name__)


@dataclass
class ForwardingLog:
    """Records the forwarded events and, for each lease, why events wait."""

    forwarded: int = 0
    waiting: dict[str | None, str] = field(default_factory=dict)
    """The last reason of each lease, the newest last; that of the whole processor under None."""
    throttle: LogThrottle = field(default_factory=LogThrottle)

    def sent(self, lease: str, count: int) -> None:
        """Records that the broker has accepted events."""
        self.forwarded += count
        if self.waiting.pop(lease, None) is not None:
            _log.info("events are delivered again")
            self.throttle.reset()

    def failed(self, lease: str | None, error: BaseException) -> None:
        """Records a failure and logs it at once, then once a minute; a NotDelivered was logged where it was raised."""
        if isinstance(error, SDK_ERRORS):  # from reading the feed; forwarding counts a page's errors
            telemetry.round_failed(why_of(error))
        self.waiting.pop(lease, None)
        self.waiting[lease] = str(classify(error).error() if isinstance(error, SDK_ERRORS) else error)
        if not isinstance(error, NotDelivered) and self.throttle.due():
            _log.error("events wait: %s", self.waiting[lease])

    def reason(self, leases: Collection[str]) -> str:
        """Returns the newest reason of the processor or one of these leases: the others have another owner by now."""
        known = [reason for lease, reason in self.waiting.items() if lease is None or lease in leases]
        return known[-1] if known else "the log says why"


@dataclass
class RelayHealth(WorkerHealth):
    """The relay's state: the last round of each loop, and whether the store answers."""

    processor: "changefeed.ChangeFeedProcessor"
    forwarding: ForwardingLog
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the relay has tried to start: from then on it works, or waits for the store."""
    started: bool = False

    @property
    def silent_seconds(self) -> float:
        """0 before the start, when no loop runs: the start is retried, and each attempt is bounded in time."""
        return max(each.silent_seconds for each in self.processor.heartbeats) if self.started else 0.0

    @property
    def longest_round_seconds(self) -> float:
        """A page is sent for ``RELAY_SEND_SECONDS``, and while others park and replay, several times as long."""
        return _SENDS_OF_A_PAGE * self.wired.relay.relay.reading_seconds

    def waiting(self) -> str | None:
        """Returns why events wait; None also for a worker without a lease, which is on standby."""
        if not self.started:
            return "the relay has not started: the log says what it waits for"
        if self.processor.missing_ranges:
            return "a part of the feed has no lease"
        if any(each.failed for each in self.processor.heartbeats):
            return "events wait: the log says why"
        return None

    def line(self) -> str:
        """Returns one line about the leases, the events and the current problem."""
        leases, forwarded = len(self.processor.owned_leases), self.forwarding.forwarded
        return f"{leases} lease(s), {forwarded} event(s) forwarded, {self._of_events()}"

    def _of_events(self) -> str:
        if missing := len(self.processor.missing_ranges):
            return f"events wait: {missing} part(s) of the feed have no lease; a lease is made again within the minute"
        if not any(each.failed for each in self.processor.heartbeats):
            return "no event waits"
        return f"events wait: {self.forwarding.reason(self.processor.owned_leases)}"


async def run(service: Wired, stop: asyncio.Event, address: Address | None = None) -> None:
    """Relay until ``stop`` is set, answering probes at ``address``.

    Returns when leases are released and clients are closed. Raises Misconfigured.
    """
    health = health_of(service, stop)
    async with service.resources, probes.answered(address, health):
        await work(health)
    _log.info("stopped: %d event(s) forwarded", health.forwarding.forwarded)


def health_of(wired: Wired, stop: asyncio.Event, tried: asyncio.Event | None = None) -> RelayHealth:
    """A relay that is to begin: for :func:`work`, once. ``tried`` is set when it has tried to start."""
    forwarding = ForwardingLog()
    return RelayHealth(wired, stop, _processor(wired, forwarding), forwarding, tried or asyncio.Event())


async def work(health: RelayHealth) -> None:
    """Relay until it is asked to stop, and give the leases back. Raises Misconfigured."""
    wired, processor, stop = health.wired, health.processor, health.stop
    if not await _start(health):
        return
    health.started = True
    _log.info("the relay works")
    # The app's timers do the same: the worker may run without the app.
    upkeep = [
        asyncio.create_task(
            every(UPKEEP_PAUSE_SECONDS, stop, "parked events wait", wired.operator.parking.upkeep)
        ),
        asyncio.create_task(
            every(UPKEEP_PAUSE_SECONDS, stop, "no metrics of the relay", wired.operator.observer.measure)
        ),
    ]
    if (deadlines := wired.relay.deadlines) is not None:
        first = BEAT_SECONDS * randomness().random()  # workers that begin at once look at other times
        looking = every(BEAT_SECONDS, stop, "deadlines wait", deadlines.fire_due, first=first)
        upkeep.append(asyncio.create_task(looking))
    try:
        with wired.outbox.on_commit.listening(processor.wake):
            await health.log()
    finally:
        for task in upkeep:
            task.cancel()  # a replay that is cancelled leaves its claim, which expires
        await asyncio.wait(upkeep)
        await _stop(processor)


def _processor(wired: Wired, forwarding: ForwardingLog) -> "changefeed.ChangeFeedProcessor":
    relaying, feed = wired.relay, wired.outbox.settings.feed

    async def forward(page: VerifiedPage, context: "changefeed.ChangeFeedContext") -> None:
        forwarding.sent(context.lease_token, (await relaying.forwarding.forward_committed(page)).sent)

    return changefeed.ChangeFeedProcessor(
        wired.outbox.feed,
        relaying.leases,
        changefeed.TwoSteps(relaying.forwarding.compare, forward),
        instance_name=f"{machine()}-{new_id().hex[:8]}",
        lease_prefix=feed.lease_prefix,
        clock=changefeed.Clock(utc_now, monotonic),
        options=changefeed.ProcessorOptions(
            poll_interval=feed.poll_delay_ms / 1000,
            max_items=feed.max_items,
            start=changefeed.StartFrom.beginning(),
            acquire_interval=LEASE_ACQUIRE_MS / 1000,
            renew_interval=LEASE_RENEW_MS / 1000,
            expiration_interval=LEASE_EXPIRATION_MS / 1000,
            mend_leases=True,
        ),
        on_error=forwarding.failed,
    )


async def _start(health: RelayHealth) -> bool:
    """Starts as soon as the store answers; False if the stop came first."""
    pause = _FIRST_PAUSE_SECONDS
    while not health.stop.is_set():
        try:
            await health.wired.check()
            await health.processor.start()
        except (OutboxError, *SDK_ERRORS) as error:
            health.forwarding.failed(None, error)
            health.tried.set()
            await wait(health.stop, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        except changefeed.ChangeFeedError as error:
            raise Misconfigured(str(error)) from error
        else:
            health.tried.set()
            return True
    return False


async def _stop(processor: "changefeed.ChangeFeedProcessor") -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            await processor.stop()
    except TimeoutError:
        await processor.stop(drain=False)
