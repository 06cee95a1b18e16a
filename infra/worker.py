"""Both workers start, tell how they are, and stop in one way: a stop lets what is in hand end, for some seconds."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from changefeed import ChangeFeedError
from infra.correlation import tag_log_lines
from infra.errors import Misconfigured
from infra.probes import Address, Vitals
from infra.service import add_argument, composition_root
from infra.settings import load

HEALTH_SECONDS = 60.0
"""How often the health line is logged; a failure that goes on is logged with it, not at each attempt."""

DRAIN_SECONDS = 20.0
"""How long a stop waits for what is in hand. Kubernetes kills 30 s after SIGTERM by default."""

_log = logging.getLogger(__name__)


class Health(Vitals, Protocol):
    """How a worker is, for probes and for the log."""

    def line(self) -> str:
        """What was done, and what is in the way."""


@dataclass(frozen=True)
class Command:
    """One kind of worker."""

    module: str
    name: str
    """As it stands before an error."""
    description: str
    run: Callable[[Any, asyncio.Event, Address | None], Awaitable[None]]
    """Works for a wired service until the event is set, and answers probes at the address."""


def main(command: Command, argv: Sequence[str] | None = None) -> int:
    """Run a worker. Exit code 0 after a stop, 2 with one line when a setting or the deployment is wrong."""
    arguments = _parser(command).parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    tag_log_lines()
    try:
        asyncio.run(_until_told(command, arguments.service, arguments.probes))
    except (Misconfigured, ChangeFeedError) as error:
        print(f"{command.name}: {error}", file=sys.stderr)
        return 2
    return 0


async def _until_told(command: Command, service: str, probes: Address | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await command.run(composition_root(service).wire(load(os.environ)), stop, probes)


def _parser(command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {command.module}",
        description=command.description,
        epilog="The settings are read from the environment, as the app reads them: docs/settings.md.",
    )
    add_argument(parser)
    parser.add_argument(
        "--probes",
        type=_address,
        metavar="[HOST:]PORT",
        help="answer GET /healthz and GET /readyz there, for a container's probes; without HOST on the loopback "
        "address alone, with 0.0.0.0 on all (default: nowhere)",
    )
    return parser


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def tell_health(health: Health, stop: asyncio.Event) -> None:
    """Log the health line every minute until ``stop`` is set."""
    while not await wait(stop, HEALTH_SECONDS):
        _log.info("health: %s", health.line())


async def wait(stop: asyncio.Event, seconds: float) -> bool:
    """Wait so long, or until ``stop`` is set. Returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()
