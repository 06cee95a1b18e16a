"""A worker and the relay function can replace one another without losing an event or their place in the feed.

The worker is the relay outside Functions, for containers: ``python -m infra.relay_worker [--service MODULE]``. It reads
the same settings, reads the feed in the same way and keeps the same leases as the relay function, so several workers
share the work. A batch that cannot be delivered is read again until it is delivered. A stop waits for the running batch
for some seconds, then leaves the batch to the next worker.
"""

from infra import installed

if __name__ == "__main__":
    installed.require("relay worker")

import argparse
import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from changefeed import ChangeFeedContext, ChangeFeedError, ChangeFeedProcessor, ProcessorOptions, StartFrom
from infra import relay_feed
from infra.cosmos.errors import SDK_ERRORS, classify
from infra.errors import Misconfigured
from infra.settings import Settings, load
from infra.wiring import Outbox, Wired
from outbox.errors import NotDelivered, OutboxError
from outbox.once_a_minute import OnceAMinute

HEALTH_SECONDS = 60.0
"""How often the health line is logged; a failure that goes on is logged with it, not at each attempt."""

UPKEEP_PAUSE_SECONDS = 60.0
"""How often parked events are looked at that no operator needs to look at, and how far the relay is."""

DRAIN_SECONDS = 20.0
"""How long a stop waits for the running batch. Kubernetes kills 30 s after SIGTERM by default."""

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0

_log = logging.getLogger(__name__)


@dataclass
class Health:
    """The content of the worker's health line."""

    forwarded: int = 0
    waiting_for: str | None = None
    saying: OnceAMinute = field(default_factory=OnceAMinute)

    def sent(self, count: int) -> None:
        """Note that the broker has accepted events."""
        self.forwarded += count
        if self.waiting_for is not None:
            _log.info("events are delivered again")
        self.waiting_for = None
        self.saying.reset()

    def failed(self, error: BaseException) -> None:
        """Note a failure, and log it at once and then once a minute; the relay itself logs a NotDelivered."""
        self.waiting_for = str(classify(error).error() if isinstance(error, SDK_ERRORS) else error)
        if not isinstance(error, NotDelivered) and self.saying.due():
            _log.error("events wait: %s", self.waiting_for)


async def run(outbox: Outbox, stop: asyncio.Event) -> None:
    """Relay until ``stop`` is set. Returns when leases are given back and clients are closed."""
    health = Health()

    async def forward(changes: Sequence[Mapping[str, Any]], _: ChangeFeedContext) -> None:
        health.sent((await outbox.forward(changes)).sent)

    processor = ChangeFeedProcessor(
        outbox.feed,
        outbox.leases,
        forward,
        instance_name=f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        lease_prefix=outbox.reading.lease_prefix,
        options=ProcessorOptions(
            poll_interval=outbox.reading.poll_delay_ms / 1000,
            max_items=outbox.reading.max_items,
            start=StartFrom.beginning(),
            acquire_interval=relay_feed.LEASE_ACQUIRE_MS / 1000,
            renew_interval=relay_feed.LEASE_RENEW_MS / 1000,
            expiration_interval=relay_feed.LEASE_EXPIRATION_MS / 1000,
            mend_leases=True,
        ),
        on_error=lambda _, error: health.failed(error),
    )
    async with outbox.resources:
        if await _started(outbox, processor, health, stop):
            _log.info("the relay works; SIGTERM stops it")
            # As the app's timers do: the worker may run without the app.
            upkeep = [
                asyncio.create_task(_every_minute("parked events wait", outbox.parking.upkeep, stop)),
                asyncio.create_task(_every_minute("no metrics of the relay", outbox.observer.measure, stop)),
            ]
            await _tell_health(processor, health, stop)
            for task in upkeep:
                task.cancel()  # a replay that is cut off leaves its claim, which runs out
            await asyncio.wait(upkeep)
            await _stopped(processor)
    _log.info("stopped: %d event(s) forwarded", health.forwarded)


async def _started(
    outbox: Outbox, processor: ChangeFeedProcessor, health: Health, stop: asyncio.Event
) -> bool:
    """Start as soon as the store answers; False when the stop came first."""
    pause = _FIRST_PAUSE_SECONDS
    while not stop.is_set():
        try:
            await outbox.check()
            await processor.start()
        except Misconfigured:
            raise
        except (OutboxError, *SDK_ERRORS) as error:
            health.failed(error)
            await _wait(stop, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        else:
            return True
    return False


async def _tell_health(processor: ChangeFeedProcessor, health: Health, stop: asyncio.Event) -> None:
    while not await _wait(stop, HEALTH_SECONDS):
        _log.info(
            "health: %d lease(s), %d event(s) forwarded, %s",
            len(processor.owned_leases),
            health.forwarded,
            _waiting(health.waiting_for, missing=len(processor.missing_ranges)),
        )


def _waiting(reason: str | None, *, missing: int) -> str:
    if missing:
        return f"events wait: {missing} part(s) of the feed have no lease; a lease is made again within the minute"
    return f"events wait: {reason}" if reason else "no event waits"


async def _every_minute(failing: str, work: Callable[[], Awaitable[object]], stop: asyncio.Event) -> None:
    while not await _wait(stop, UPKEEP_PAUSE_SECONDS):
        try:
            await work()
        except (OutboxError, Misconfigured) as error:
            _log.warning("%s: %s", failing, error)


async def _stopped(processor: ChangeFeedProcessor) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            await processor.stop()
    except TimeoutError:
        await processor.stop(drain=False)


async def _wait(stop: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


async def _main(wire: Callable[[Settings], Wired]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(wire(load(os.environ)).outbox, stop)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker. Exit code 0 after a stop, 2 with one line when a setting or the deployment is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.relay_worker", description="Forward the events of a service until told to stop."
    )
    parser.add_argument(
        "--service",
        default="infra.bootstrap",
        metavar="MODULE",
        help="the module whose wire(settings) makes the service (default: infra.bootstrap)",
    )
    service = parser.parse_args(argv).service
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    try:
        asyncio.run(_main(importlib.import_module(service).wire))
    except (Misconfigured, ChangeFeedError) as error:
        print(f"relay worker: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
