"""A worker and the subscriber function can replace one another: both handle a message in the same way.

The worker is the subscriber outside Functions, for containers: ``python -m infra.subscriber_worker``, and perhaps
``--service MODULE``. It reads the same settings, receives sessions side by side, and does what the timers do: it
collects dead letters, tries what was set aside, and sweeps. Several workers share the sessions. A stop waits for the
messages in hand for some seconds, then leaves them to the next worker.
"""

from infra import installed

if __name__ == "__main__":
    installed.require("subscriber worker")

import argparse
import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from inbox.errors import StoreAway
from inbox.sweep import Sweep
from infra.errors import Misconfigured
from infra.servicebus.sessions import Work
from infra.settings import Settings, load
from infra.subscriber import Subscriber
from infra.wiring import Outbox
from outbox.errors import OutboxError

SLOTS = 32
"""How many sessions are held at the same time, as in host.json."""

HEALTH_SECONDS = 60.0
WATCH_SECONDS = 60.0
SWEEP_EVERY_SECONDS, SWEEP_SECONDS = 600.0, 120.0

DRAIN_SECONDS = 20.0
"""How long a stop waits for the messages in hand. Kubernetes kills 30 s after SIGTERM by default."""

_log = logging.getLogger(__name__)


class Subscribed(Protocol):
    """A service that has a subscriber."""

    @property
    def outbox(self) -> Outbox: ...
    @property
    def subscriber(self) -> Subscriber: ...
    @property
    def sweep(self) -> Sweep[Any]: ...


async def run(service: Subscribed, stop: asyncio.Event, *, slots: int = SLOTS) -> None:
    """Receive until ``stop`` is set. Returns when the clients are closed."""
    work, subscriber = Work(), service.subscriber
    async with service.outbox.resources:
        others = [
            asyncio.create_task(_every(WATCH_SECONDS, subscriber.watch)),
            asyncio.create_task(
                _every(SWEEP_EVERY_SECONDS, lambda: service.sweep.run(seconds=SWEEP_SECONDS))
            ),
            asyncio.create_task(_tell_health(work)),
        ]
        serving = asyncio.create_task(
            subscriber.queues().sessions.serve(subscriber.receiver.receive, stop, work, slots=slots)
        )
        stopping = asyncio.create_task(stop.wait())
        _log.info("the subscriber works; SIGTERM stops it")
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            await asyncio.wait({serving}, timeout=DRAIN_SECONDS)
        ended = [*others, serving, stopping]
        for task in ended:
            task.cancel()
        await asyncio.wait(ended)
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error
    _log.info("stopped: %d message(s) received", work.received)


async def _every(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except (StoreAway, OutboxError) as error:
            _log.error("what was set aside waits, and so does the sweep: %s", error)


async def _tell_health(work: Work) -> None:
    while True:
        await asyncio.sleep(HEALTH_SECONDS)
        waiting = f"messages wait: {work.waiting_for}" if work.waiting_for else "no failure"
        _log.info("health: %d session(s), %d message(s) received, %s", work.sessions, work.received, waiting)


async def _main(wire: Callable[[Settings], Subscribed]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(wire(load(os.environ)), stop)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker. Exit code 0 after a stop, 2 with one line when a setting or the deployment is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.subscriber_worker",
        description="Receive the messages of a subscription until told to stop.",
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
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(_main(importlib.import_module(service).wire))
    except Misconfigured as error:
        print(f"subscriber worker: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
