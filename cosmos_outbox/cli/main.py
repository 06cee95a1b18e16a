"""Runs one part of ``cosmos-outbox``, each a module of its own: what an operator, or a container, does with a service.

    cosmos-outbox COMMAND [--service MODULE] ...

``python -m cosmos_outbox`` is the same, where the package is not installed but deployed as a folder. A part that lacks
a package ends with one line that names the package and says what to run: so nothing but the standard library is
imported here, and a part's module only when it is asked for.
"""

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.errors import CORE, EXTRAS, missing

UNUSABLE = 2
"""The exit code of a command that could not start; the same as for a missing setting."""

READER_GONE = 141
"""The exit code when nobody reads the output any more; a shell gives the same to a command that SIGPIPE has ended."""


@dataclass(frozen=True)
class Part:
    """One part of the command."""

    does: str
    module: str
    """Beside this one."""
    function: str = "main"
    extra: str | None = "relay"
    """The extra that has to be installed beside that of the service's transport, which names its own; None: none."""

    def main(self) -> Callable[..., int]:
        """The function that runs it, and returns the exit code."""
        module = importlib.import_module(f"cosmos_outbox.cli.{self.module}")
        found: Callable[..., int] = getattr(module, self.function)
        return found


PARTS: Mapping[str, Part] = {
    "init": Part("write a new service, which runs at once", "init", extra=None),
    "relay": Part("forward events, in a process of its own", "work", "relay_main"),
    "subscriber": Part("receive messages, in a process of its own", "work", "subscriber_main", None),
    "preflight": Part("check a deployment before traffic does", "preflight"),
    "status": Part("say how the service is, and what to do", "status"),
    "stuck": Part("list events and messages that are stuck, or show one", "stuck", "stuck_main", None),
    "retry": Part("try what is stuck again", "stuck", "retry_main", None),
    "discard": Part("give up what is stuck", "stuck", "discard_main", None),
    "events": Part("list an aggregate's events, and where each stands", "stuck", "events_main"),
    "publish-again": Part("publish the events of a time again", "publish_again"),
    "rebuild": Part("fill or repair a read model from its sources", "rebuild", extra=None),
    "schemas": Part("write the schemas of the events", "schemas", extra=None),
    "resources": Part("write what a deployment has to make", "resources", extra=None),
}

RUN_TIME = {
    **CORE, **EXTRAS["functions"], **EXTRAS["servicebus"], **EXTRAS["telemetry"],
    **EXTRAS["storagequeue"],
    "email_validator": "email-validator",
}  # fmt: skip

"""The modules of requirements.txt, which the app of a checkout needs."""

_CHECKOUT = Path(__file__).parents[2]
"""The folder that holds the package: in a checkout, the app's, with its requirements files."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one part, and return its exit code; 2 when there is no such part."""
    given = sys.argv[1:] if argv is None else argv
    name = given[0] if given else "--help"
    if name in ("-h", "--help"):
        print(usage())
        return 0 if given else UNUSABLE
    if name not in PARTS:
        print(
            f"cosmos-outbox: there is no command {name!r}; cosmos-outbox --help lists them", file=sys.stderr
        )
        return UNUSABLE
    part = PARTS[name]
    require_extra(f"cosmos-outbox {name}", part.extra)
    try:
        return part.main()(given[1:])
    except BrokenPipeError:  # head, for example, has read all that it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to fail at the exit
        return READER_GONE


def usage() -> str:
    """The parts, a line each."""
    longest = max(map(len, PARTS))
    lines = [f"  {name:<{longest}}  {part.does}" for name, part in PARTS.items()]
    return "\n".join(
        ["usage: cosmos-outbox COMMAND [--service MODULE] ...", "", *lines, "", "COMMAND --help says more."]
    )


def require_extra(command: str, extra: str | None) -> None:
    """End the process with one line when a package is missing that the library needs with this extra."""
    if (_CHECKOUT / "requirements.txt").exists():
        require(command, RUN_TIME, "make venv and use .venv/bin/python, or run ", "-r requirements.txt")
        return
    wanted, modules = ("", CORE) if extra is None else (f"[{extra}]", CORE | EXTRAS[extra])
    require(command, modules, "", f"'cosmos-outbox{wanted}'")


def require(command: str, modules: dict[str, str], advice: str, packages: str) -> None:
    """End the process with one line when a package is missing; ``advice`` comes before the call of pip."""
    if absent := ", ".join(missing(modules)):
        remedy = f"{advice}{sys.executable} -m pip install {packages}"
        print(f"{command}: {sys.executable} does not have {absent}. Run {remedy}", file=sys.stderr)
        sys.exit(UNUSABLE)
