"""An aggregate's data is erased, step by step, and what could not be erased is told; cut off, the same command goes on.

    cosmos-outbox erase TYPE ID [--wait SECONDS]

A service says what remains of an aggregate with ``Service.erases``.
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import DONE, CannotDo, say
from cosmos_outbox.outbox.erasable import Erasable
from cosmos_outbox.wiring.erasing import wire_eraser
from cosmos_outbox.wiring.service import Service, Wired

WAIT_SECONDS = 60


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Erase, and return the exit code."""
    parser = operating.parser(
        "erase",
        "Delete an aggregate and erase its data from every container of the service. It cannot be taken back.",
        done="erased",
        attention="not all, as the last line says: run it again",
    )
    operating.add_aggregate(parser)
    parser.add_argument(
        "--wait",
        type=int,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"how long to wait until the relay has forwarded the aggregate's events (default: {WAIT_SECONDS})",
    )
    return operating.run(parser, _erase, argv, environment)


async def _erase(wired: Wired, arguments: Namespace) -> int:
    key = operating.aggregate(wired.service, arguments.type, arguments.id)
    of = _declared(wired.service, key.type)
    async for step in wire_eraser(wired, of).erase(key, patience_seconds=arguments.wait):
        say(f"erase: {step}")
    say("erase: erased. What is left:")
    for line in left(wired, of):
        say(f"erase: - {line}")
    return DONE


def _declared(service: Service, aggregate_type: str) -> Erasable:
    """What the service says of the type. Raises CannotDo."""
    for each in service.erasables:
        if each.aggregate_type == aggregate_type:
            return each
    raise CannotDo(
        f"{service.name} does not say what remains of an erased {aggregate_type}: declare it with service.erases(...)"
    )


def left(wired: Wired, of: Erasable) -> Sequence[str]:
    """What the command cannot erase, and when it goes by itself."""
    settings = wired.settings
    kept = ", ".join(sorted(of.kept)) or "the event of the deletion"
    return (
        f"the empty tombstone of the {of.aggregate_type}: its id and times, for up to {settings.event_ttl_seconds} s",
        f"digests of requests with an Idempotency-Key: for up to {settings.idempotency_ttl_seconds} s",
        "messages that a subscription still holds: until they are received or expire",
        f"what other subscribers have stored: {kept} tells them",
        "logs: they hold ids alone, until their retention is over",
        "backups: until they are too old to be restored; after a restore, run this command again",
    )
