"""A worker runs until it is asked to stop, and stops with exit code 0; what it cannot start without is one line.

A relay that drains ends by itself, and its exit code says whether all is forwarded.
"""

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from cosmos_outbox.cli import command
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import Misconfigured, needed
from cosmos_outbox.telemetry.correlation import tag_log_lines
from cosmos_outbox.worker import relay, shutdown, subscriber
from cosmos_outbox.worker.probes import Address

T = TypeVar("T", bound=Wired)

_LONGEST_SECONDS = 86_400.0

ALL, NOT_ALL, UNUSABLE = 0, 1, 2
"""Exit codes: of a relay that drains, whether all is forwarded that was stored when it began."""


def relay_main(argv: Sequence[str] | None = None) -> int:
    """``cosmos-outbox relay``"""
    parser = _parser("relay", "Forward the events of a service until asked to stop.")
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
    arguments = parser.parse_args(argv)

    async def work(stop: asyncio.Event) -> int:
        wired = _with_its_packages(command.service(arguments).wire(os.environ))
        task = shutdown.Task(arguments.once, arguments.seconds)
        if not (task.once or task.seconds):
            await relay.run(wired, stop, arguments.probes)
            return ALL
        drained = await shutdown.drain(wired, stop, arguments.probes, task)
        command.say(f"relay: {drained}")
        return ALL if drained.whole else NOT_ALL

    return _run("relay", work)


def subscriber_main(argv: Sequence[str] | None = None) -> int:
    """``cosmos-outbox subscriber``"""
    parser = _parser("subscriber", "Receive the messages of the service's subscriptions until asked to stop.")
    arguments = parser.parse_args(argv)

    async def work(stop: asyncio.Event) -> int:
        wired = _with_its_packages(command.any_service(arguments).wire(os.environ))
        await subscriber.run(wired, stop, arguments.probes)
        return ALL

    return _run("subscriber", work)


def _with_its_packages(wired: T) -> T:
    """The same service. Raises Misconfigured: the packages of its transport are not installed."""
    needed(wired.settings.transport.name)
    return wired


def _run(name: str, work: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Work until a signal comes. Exit code 2, with one line, when a setting or the deployment is wrong."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    tag_log_lines()

    async def until_told() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, stop.set)
            except NotImplementedError:  # on Windows
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
        return await work(stop)

    try:
        return asyncio.run(until_told())
    except Misconfigured as error:
        command.say_error(f"{name}: {error}")
        return UNUSABLE


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"cosmos-outbox {name}",
        description=description,
        epilog="The settings are read from the environment, as the app reads them: docs/use/settings.md.",
    )
    command.add_argument(parser)
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
