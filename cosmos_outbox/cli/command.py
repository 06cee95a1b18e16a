"""Finds the service of ``--service``, and its settings, for a command; an operator's command uses the store itself.

The service is named by the call, by the environment, or by the project that the command stands in. An operator's
command reads the service's settings: so it works while no app runs, and needs the rights of the app. Each failure is
one line that says what to do. It ends with 0: done, and nothing is left to do; 1: not done, or something wants
attention; 2: it could not be tried, because a setting is wrong or the store is away.
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import re
import sys
import tomllib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from cosmos_outbox.inbox.errors import InboxError, StoreUnavailable
from cosmos_outbox.kernel.loops import cause_of
from cosmos_outbox.outbox.errors import OutboxError, Throttled, Unavailable
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.errors import InfraError, Misconfigured
from cosmos_outbox.telemetry.correlation import on_one_line, tag_log_lines

SETTING = "OUTBOX_SERVICE"
DONE, ATTENTION, UNUSABLE = 0, 1, 2

AT_ONCE = 100
"""How many items of a list are read at once."""


class CannotDo(Exception):
    """The command cannot do what was asked, or finds no such thing: the message says what can be done."""


def parser(
    name: str,
    description: str,
    done: str,
    attention: str,
    unusable: str = "a setting is wrong, or the store is away",
) -> argparse.ArgumentParser:
    """The parser of ``cosmos-outbox NAME``, which knows ``--service`` and ``--settings``, and lists the exit codes."""
    made = argparse.ArgumentParser(
        prog=f"cosmos-outbox {name}",
        description=description,
        epilog=f"Exit code 0: {done}, 1: {attention}, 2: {unusable}.",
    )
    made.add_argument(
        "--service",
        metavar="MODULE",
        help="the module that declares the service, such as bookings.service (default: the setting "
        f"{SETTING}, else service in [tool.cosmos-outbox] of the pyproject.toml in this folder)",
    )
    made.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="the app's settings, a file like local.settings.json; a variable of the environment beats the file",
    )
    return made


def named(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ, *, publishes: bool = False
) -> tuple[Service, Mapping[str, str]]:
    """The service that the call, the environment or the project names, and its settings. Raises Misconfigured.

    ``publishes``: one that only subscribes is none for this command.
    """
    settings = {**(_values(arguments.settings) if arguments.settings else {}), **environment}
    name = arguments.service or settings.get(SETTING) or _of_the_project(Path("pyproject.toml"))
    if not name:
        raise Misconfigured(
            f"no service is named: add --service MODULE, set {SETTING}, or run the command in the folder whose "
            "pyproject.toml names one"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:  # an installed command does not look there by itself
        sys.path.insert(0, folder)
    service = load_service(name)
    if publishes and not service.publishes:
        raise Misconfigured(
            f"{service.name} only subscribes, and this command is about events that a service publishes: name such a "
            "service with --service, or ask the team that publishes"
        )
    return service, settings


def load_service(name: str) -> Service:
    """Imports the service that a command names: a module that has it as ``service``, or MODULE.ATTRIBUTE.

    Raises Misconfigured.
    """
    module, _, attribute = name.rpartition(".")
    for place, wanted in ((name, "service"), (module, attribute)):
        if not place:
            continue
        try:
            found = getattr(importlib.import_module(place), wanted, None)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
                continue
            raise Misconfigured(
                f"--service {name}: {place} cannot be imported: {cause_of(error)}: {on_one_line(str(error))}. Is this "
                "the folder that its imports begin in?"
            ) from error
        if isinstance(found, Service):
            return found
    raise Misconfigured(
        f"--service {name}: there is no Service there. Name the module that declares one as service, such as "
        "bookings.service, or MODULE.NAME, and run the command in the folder above"
    )


def _of_the_project(file: Path) -> str | None:
    try:
        own = tomllib.loads(file.read_text("utf-8-sig")).get("tool", {}).get("cosmos-outbox", {})
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot read {file}: {error}") from error
    if unknown := sorted(own.keys() - {"service"}):
        raise Misconfigured(f"[tool.cosmos-outbox] of {file} has {', '.join(unknown)}: it knows only service")
    named = own.get("service")
    return named if isinstance(named, str) else None


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""A comment, or in the first group a text, in which there is none."""


def _values(file: Path) -> Mapping[str, str]:
    """The values of a settings file. Raises Misconfigured."""
    try:
        text = file.read_text("utf-8-sig")
        content = json.loads(
            _COMMENT.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
        )  # the func tool allows comments
        encrypted, values = content.get("IsEncrypted", False), content["Values"]
    except OSError as error:
        raise Misconfigured(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise Misconfigured(
            f'{file} is not a settings file: it must be a JSON object with "Values", like local.settings.sample.json'
        ) from error
    if encrypted:
        raise Misconfigured(
            f"{file} is encrypted: run func settings decrypt, or set the values in the environment"
        )
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise Misconfigured(f'the "Values" in {file} must be an object of strings')
    return values


def run(  # noqa: PLR0913 - the last two by name
    made: argparse.ArgumentParser,
    work: Callable[[Wired, argparse.Namespace], Awaitable[int]],
    argv: Sequence[str] | None,
    environment: Mapping[str, str],
    *,
    publishes: bool = False,
    log_level: int = logging.CRITICAL,
) -> int:
    """Do the work of a command for a service, and return the exit code. ``publishes``: as :func:`named`."""
    arguments = made.parse_args(argv)
    log_to_stderr(log_level)

    async def begin() -> int:
        service, settings = named(arguments, environment, publishes=publishes)
        wired = service.wire(settings)
        async with wired.resources:
            return await work(wired, arguments)

    return ended(made, begin())


def ended(made: argparse.ArgumentParser, work: Coroutine[Any, Any, int]) -> int:
    """Run a command to its end, and return the exit code; a failure is one line."""
    try:
        return asyncio.run(work)
    except (Misconfigured, Unavailable, Throttled, StoreUnavailable) as error:
        return _failed(made, error, UNUSABLE)
    except (CannotDo, InfraError, OutboxError, InboxError) as error:
        return _failed(made, error, ATTENTION)
    except KeyboardInterrupt:
        return _failed(made, "interrupted: run the same command again, it goes on from here", ATTENTION)


def _failed(made: argparse.ArgumentParser, error: object, code: int) -> int:
    line = " ".join(str(error).split())
    away = isinstance(error, Unavailable | Throttled | StoreUnavailable)
    hint = ". Run the same command again; cosmos-outbox preflight says what is in its way" if away else ""
    say_error(f"{made.prog.rpartition(' ')[2]}: {line}{hint}")
    return code


def log_to_stderr(level: int, of_the_sdks: int = logging.CRITICAL) -> None:
    """Log from this level on, a line for each record; the SDKs nothing, since the last line reports a failure once."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(of_the_sdks)
    tag_log_lines()


def say(line: str, end: str = "\n") -> None:
    """Print one line, with control characters escaped: stored text cannot control the terminal or add a line."""
    print(on_one_line(line), end=end, flush=True)


def say_error(line: str) -> None:
    """As :func:`say`, to the standard error."""
    print(on_one_line(line), file=sys.stderr)


def say_json(view: Mapping[str, Any]) -> None:
    """The command's output for programs: the JSON of the operators' calls, in which every such character is escaped."""
    print(json.dumps(view, indent=2), flush=True)


def add_json(made: argparse.ArgumentParser) -> None:
    """``--json``"""
    made.add_argument("--json", action="store_true", help="print it as JSON, as the call over HTTP does")


def emulator_port(environment: Mapping[str, str]) -> int:
    """Returns the port of an emulator's management API. Raises Misconfigured.

    5300: https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator
    """
    port = environment.get("SERVICEBUS_ADMIN_PORT", "") or "5300"
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise Misconfigured(
            f"SERVICEBUS_ADMIN_PORT is {port!r}: set it to the port of the emulator's management API"
        )
    return int(port)
