"""One command does what an operator, or a container, does with a service; each of its parts is a module of its own.

    cosmos-outbox COMMAND [--service MODULE] ...

``python -m cosmos_outbox`` is the same, where the package is not installed but deployed as a folder.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cosmos_outbox.cli import installed


@dataclass(frozen=True)
class Part:
    """One part of the command; its module is imported when it is asked for."""

    does: str
    module: str
    function: str = "main"
    extra: str | None = "relay"
    """What has to be installed beside the library and the service's transport, which says so itself; None: nothing."""

    def main(self) -> Callable[..., int]:
        """What runs it, and returns the exit code."""
        found: Callable[..., int] = getattr(importlib.import_module(self.module), self.function)
        return found


PARTS: Mapping[str, Part] = {
    "init": Part("write a new service, which runs at once", "cosmos_outbox.cli.init", extra=None),
    "relay": Part("forward events, in a process of its own", "cosmos_outbox.cli.work", "relay_main"),
    "subscriber": Part(
        "receive messages, in a process of its own", "cosmos_outbox.cli.work", "subscriber_main", None
    ),
    "preflight": Part("check a deployment before traffic does", "cosmos_outbox.cli.preflight"),
    "status": Part("tell how the service is, and what to do", "cosmos_outbox.cli.status"),
    "parked": Part("list the events that cannot be sent, or show one", "cosmos_outbox.cli.parked"),
    "replay": Part("send an aggregate's parked events", "cosmos_outbox.cli.parked", "replay_main"),
    "set-aside": Part(
        "list the messages that could not be applied, or show one",
        "cosmos_outbox.cli.set_aside",
        extra=None,
    ),
    "apply": Part(
        "try a message that was set aside",
        "cosmos_outbox.cli.set_aside",
        "apply_main",
        None,
    ),
    "discard": Part(
        "give up a parked event, or a message that was set aside",
        "cosmos_outbox.cli.discard",
        extra=None,
    ),
    "events": Part("list an aggregate's events, and where each stands", "cosmos_outbox.cli.events"),
    "publish-again": Part("publish the events of a time again", "cosmos_outbox.cli.publish_again"),
    "rebuild": Part("fill or repair a read model from its sources", "cosmos_outbox.cli.rebuild", extra=None),
    "schemas": Part("write the schemas of the events", "cosmos_outbox.cli.schemas", extra=None),
}

UNUSABLE = 2


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
    installed.require_extra(f"cosmos-outbox {name}", part.extra)
    return part.main()(given[1:])


def usage() -> str:
    """The parts, a line each."""
    longest = max(map(len, PARTS))
    lines = [f"  {name:<{longest}}  {part.does}" for name, part in PARTS.items()]
    return "\n".join(
        ["usage: cosmos-outbox COMMAND [--service MODULE] ...", "", *lines, "", "COMMAND --help tells more."]
    )
