"""An operator's command works on the store itself; each failure is one line that says what to do.

It reads the service's settings: so it works while no app runs, and needs the rights of the app. It ends with 0: done,
and nothing is left to do; 1: not done, or something wants attention; 2: it could not be tried, because a setting is
wrong or the store is away.
"""

import argparse
import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from cosmos_outbox.cli import told
from cosmos_outbox.inbox.errors import InboxError, StoreAway
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import OutboxError, Throttled, Unavailable
from cosmos_outbox.settings.errors import InfraError, Misconfigured
from cosmos_outbox.wiring.located import AnyWired, operator_names
from cosmos_outbox.wiring.service import Service, Wired

DONE, ATTENTION, UNUSABLE = 0, 1, 2

EXIT_CODES = "Exit code 0: {done}, 1: {attention}, 2: a setting is wrong, or the store is away."

_AT_ONCE = 100
_ID = re.compile(r"[0-9a-f]{32}")

names = operator_names

Work = Callable[[Wired, argparse.Namespace], Awaitable[int]]
"""What a command does for a wired service; returns the exit code."""

AnyWork = Callable[[AnyWired, argparse.Namespace], Awaitable[int]]
"""What a command does also for a service that only subscribes."""


class CannotDo(Exception):
    """What was asked for is not there, or cannot be done: the message says what can be."""


def parser(name: str, description: str, *, done: str, attention: str) -> argparse.ArgumentParser:
    """The parser of ``cosmos-outbox NAME``, which knows ``--service`` and ``--settings``, and tells the exit codes."""
    made = argparse.ArgumentParser(
        prog=f"cosmos-outbox {name}",
        description=description,
        epilog=EXIT_CODES.format(done=done, attention=attention),
    )
    told.add_argument(made)
    told.add_settings(made)
    return made


def run(
    made: argparse.ArgumentParser,
    work: Work,
    argv: Sequence[str] | None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Do the work of a command for a service that publishes, and return the exit code."""

    async def begin(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int:
        wired = told.service(arguments, settings).wire(settings)
        async with wired.resources:
            return await work(wired, arguments)

    return _run(made, begin, argv, environment)


def run_any(
    made: argparse.ArgumentParser,
    work: AnyWork,
    argv: Sequence[str] | None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """As :func:`run`, also for a service that only subscribes."""

    async def begin(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int:
        wired = told.any_service(arguments, settings).wire(settings)
        async with wired.resources:
            return await work(wired, arguments)

    return _run(made, begin, argv, environment)


def _run(
    made: argparse.ArgumentParser,
    begin: Callable[[argparse.Namespace, Mapping[str, str]], Coroutine[Any, Any, int]],
    argv: Sequence[str] | None,
    environment: Mapping[str, str],
) -> int:
    arguments = made.parse_args(argv)
    logging.basicConfig(level=logging.CRITICAL)  # the last line tells a failure once
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    try:
        return asyncio.run(begin(arguments, told.settings(arguments, environment)))
    except (Misconfigured, Unavailable, Throttled, StoreAway) as error:
        return _failed(made, error, UNUSABLE)
    except (CannotDo, InfraError, OutboxError, InboxError) as error:
        return _failed(made, error, ATTENTION)
    except KeyboardInterrupt:
        return _failed(made, "interrupted: run the same command again, it goes on from here", ATTENTION)


def _failed(made: argparse.ArgumentParser, error: object, code: int) -> int:
    line = " ".join(str(error).split())
    away = isinstance(error, Unavailable | Throttled | StoreAway)
    hint = ". Run the same command again; cosmos-outbox preflight says what is in its way" if away else ""
    print(f"{made.prog.rpartition(' ')[2]}: {line}{hint}", file=sys.stderr)
    return code


def say(line: str) -> None:
    """One line of what the command tells."""
    print(line, flush=True)


def say_json(view: Mapping[str, Any]) -> None:
    """What the command tells, for programs: the JSON of the operators' calls."""
    print(json.dumps(view, indent=2), flush=True)


class Paged(Protocol):
    """A page of a list."""

    @property
    def continuation_token(self) -> str | None:
        """Of the next page; None: this is the last."""


P = TypeVar("P", bound=Paged)


async def all_pages(page: Callable[[int, str | None], Awaitable[P]]) -> AsyncIterator[P]:
    """Each page of a list, from the first to the last. ``page`` is told a size and the token of the page before."""
    token: str | None = None
    while True:
        got = await page(_AT_ONCE, token)
        yield got
        token = got.continuation_token
        if token is None:
            return


def aggregate(service: Service, kind: str, name: str) -> AggregateKey:
    """The aggregate that a command is told: TYPE, or its plural, and ID. Raises CannotDo."""
    known = names(service)
    for each in known:
        if kind in (each.aggregate_type, each.path):
            return AggregateKey(each.aggregate_type, name)
    types = ", ".join(each.aggregate_type for each in known)
    raise CannotDo(f"{service.name} has no aggregates of type {kind}; it has: {types}")


def is_id(text: str) -> bool:
    """Whether it looks like the id of a parked event or of a record."""
    return _ID.fullmatch(text) is not None


def add_aggregate(made: argparse.ArgumentParser) -> None:
    """TYPE and ID of one aggregate."""
    made.add_argument("type", metavar="TYPE", help="the aggregate's type, such as booking")
    made.add_argument("id", metavar="ID", help="the aggregate's id")


def add_json(made: argparse.ArgumentParser) -> None:
    """``--json``"""
    made.add_argument("--json", action="store_true", help="tell it as JSON, as the call over HTTP does")


def in_words(seconds: float) -> str:
    """A time for people."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
