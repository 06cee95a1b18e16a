"""Runs a worker until it is asked to stop, with exit code 0; an error that prevents its start is printed as one line.

A relay that drains ends by itself, and its exit code says whether all is forwarded.
"""

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence

from cosmos_outbox import worker
from cosmos_outbox.cli import command
from cosmos_outbox.cli.command import ATTENTION, DONE, UNUSABLE
from cosmos_outbox.kernel.lazy_imports import loading
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import Misconfigured, needed
from cosmos_outbox.worker.probes import Address


def relay_main(argv: Sequence[str] | None = None) -> int:
    """``cosmos-outbox relay``"""
    parser = worker_parser(
        "relay",
        "Forward the events of a service until asked to stop.",
        "it was asked to stop; with --once: all is forwarded",
        "not all is forwarded, and a line says why",
    )
    parser.add_argument("--once", action="store_true", help="end when all is forwarded that is stored now")
    arguments = parser.parse_args(argv)

    async def work(wired: Wired, stop: asyncio.Event) -> int:
        if not arguments.once:
            await worker.relay.run(wired, stop, arguments.probes)
            return DONE
        drained = await worker.draining.drain(wired, stop, arguments.probes)
        command.say(f"relay: {drained}")
        return DONE if drained.whole else ATTENTION

    return _run("relay", arguments, work, publishes=True)


def subscriber_main(argv: Sequence[str] | None = None) -> int:
    """``cosmos-outbox subscriber``"""
    parser = worker_parser(
        "subscriber",
        "Receive the messages of the service's subscriptions until asked to stop.",
        "it was asked to stop",
        "it has failed",
    )
    arguments = parser.parse_args(argv)

    async def work(wired: Wired, stop: asyncio.Event) -> int:
        await worker.subscriber.run(wired, stop, arguments.probes)
        return DONE

    return _run("subscriber", arguments, work, publishes=False)


def _run(
    name: str,
    arguments: argparse.Namespace,
    work: Callable[[Wired, asyncio.Event], Awaitable[int]],
    *,
    publishes: bool,
) -> int:
    """Work until a signal comes. Exit code 2, with one line, when a setting or the deployment is wrong."""
    command.log_to_stderr(logging.INFO, logging.WARNING)

    async def until_a_signal() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, stop.set)
            except NotImplementedError:  # on Windows
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
        with loading():
            service, settings = command.named(arguments, os.environ, publishes=publishes)
            wired = service.wire(settings)
        needed(wired.settings.transport.name)
        return await work(wired, stop)

    try:
        return asyncio.run(until_a_signal())
    except Misconfigured as error:
        command.say_error(f"{name}: {error}")
        return UNUSABLE


def worker_parser(name: str, description: str, done: str, attention: str) -> argparse.ArgumentParser:
    """The parser of a command that runs a worker."""
    parser = command.parser(name, description, done, attention, "a setting or the deployment is wrong")
    parser.add_argument(
        "--probes",
        type=_address,
        metavar="[HOST:]PORT",
        help="answer GET /healthz, /readyz and /metrics there, for a container's probes and Prometheus; without "
        "HOST on the loopback address alone, with 0.0.0.0 on all (default: none)",
    )
    return parser


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
