"""A worker runs until it is told to stop, and stops with exit code 0; what it cannot start without is one line.

A relay that is told to drain ends by itself, and its exit code says whether all is forwarded.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cosmos_outbox.cli import told
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.telemetry.correlation import tag_log_lines
from cosmos_outbox.wiring.service import Wired
from cosmos_outbox.wiring.subscribing import WiredSubscriber
from cosmos_outbox.wiring.transports import needed_over
from cosmos_outbox.worker import draining, relay, subscriber
from cosmos_outbox.worker.probes import Address

W = TypeVar("W")
T = TypeVar("T", bound=Wired | WiredSubscriber)

_LONGEST_SECONDS = 86_400.0


@dataclass(frozen=True)
class Command(Generic[W]):
    """One kind of worker."""

    name: str
    description: str
    wired: Callable[[argparse.Namespace], W]
    """The service that it is told. Raises Misconfigured."""
    run: Callable[[W, asyncio.Event, Address | None], Awaitable[None]]
    """Works for a wired service until the event is set, and answers probes at the address."""


def _with_its_packages(wired: T) -> T:
    """The same service. Raises Misconfigured: the packages of its transport are not installed."""
    needed_over(wired.settings.transport.name)
    return wired


RELAY = Command(
    "relay",
    "Forward the events of a service until told to stop.",
    lambda arguments: _with_its_packages(told.service(arguments).wire(os.environ)),
    relay.run,
)
SUBSCRIBER = Command(
    "subscriber",
    "Receive the messages of the service's subscriptions until told to stop.",
    lambda arguments: _with_its_packages(told.any_service(arguments).wire(os.environ)),
    subscriber.run,
)


ALL, NOT_ALL, UNUSABLE = 0, 1, 2
"""Exit codes: of a relay that drains, whether all is forwarded that was stored when it began."""


def relay_main(argv: Sequence[str] | None = None) -> int:
    """``cosmos-outbox relay``"""
    parser = _parser(RELAY)
    parser.add_argument(
        "--once",
        action="store_true",
        help="end when all is forwarded that is stored now; exit code 0: it is, 1: not all, and a line says why",
    )
    parser.add_argument(
        "--for",
        type=_seconds,
        dest="seconds",
        metavar="SECONDS",
        help="end after so long, with the same exit codes",
    )
    return main(RELAY, argv, parser)


def subscriber_main(argv: Sequence[str] | None = None) -> int:
    """``cosmos-outbox subscriber``"""
    return main(SUBSCRIBER, argv)


def main(
    command: Command[W], argv: Sequence[str] | None = None, parser: argparse.ArgumentParser | None = None
) -> int:
    """Run a worker. Exit code 0 after a stop, 2 with one line when a setting or the deployment is wrong."""
    arguments = (parser or _parser(command)).parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    tag_log_lines()
    try:
        return asyncio.run(_run_until_told(command, arguments))
    except Misconfigured as error:
        print(f"{command.name}: {error}", file=sys.stderr)
        return UNUSABLE


async def _run_until_told(command: Command[W], arguments: argparse.Namespace) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    wired = command.wired(arguments)
    task = draining.Task(getattr(arguments, "once", False), getattr(arguments, "seconds", None))
    if not isinstance(wired, Wired) or not (task.once or task.seconds):
        await command.run(wired, stop, arguments.probes)
        return ALL
    drained = await draining.drain(wired, stop, arguments.probes, task)
    print(f"{command.name}: {drained}", flush=True)
    return ALL if drained.whole else NOT_ALL


def _parser(command: Command[W]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"cosmos-outbox {command.name}",
        description=command.description,
        epilog="The settings are read from the environment, as the app reads them: docs/use/settings.md.",
    )
    told.add_argument(parser)
    parser.add_argument(
        "--probes",
        type=_address,
        metavar="[HOST:]PORT",
        help="answer GET /healthz, /readyz and /metrics there, for a container's probes and Prometheus; without "
        "HOST on the loopback address alone, with 0.0.0.0 on all (default: nowhere)",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write seconds, at most a day")
    return seconds


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
