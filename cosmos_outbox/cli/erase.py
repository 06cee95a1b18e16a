"""An aggregate's data is erased, step by step, and what could not be erased is told; cut off, the same command goes on.

    cosmos-outbox erase TYPE ID [--wait SECONDS]

A service says what remains of an aggregate with ``Service.erases``.
"""

import asyncio
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import DONE, CannotDo, say
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.erasable import Erasable
from cosmos_outbox.wiring.erasing import wire_eraser
from cosmos_outbox.wiring.service import Service, Wired

WAIT_SECONDS = 60
_LOOK_SECONDS = 1.0


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
    await _erase_archived(wired, key, of, arguments.wait)
    say("erase: erased. What is left:")
    for line in left(wired, of):
        say(f"erase: - {line}")
    return DONE


async def _erase_archived(wired: Wired, key: AggregateKey, of: Erasable, patience_seconds: float) -> None:
    """The archive comes last: its reader may hold events in its hands that the store has no more. Raises CannotDo."""
    archiving = wired.outbox.archiving
    if archiving is None:
        return
    newest = {lease.lease: lease.newest or 0 for lease in (await archiving.observer.status()).leases}
    until = monotonic() + patience_seconds
    while True:
        status = await archiving.observer.status()
        behind = [
            each.lease
            for each in status.leases
            if each.lag and (each.position or 0) < newest.get(each.lease, 0)
        ]
        if not behind and not status.missing:
            break
        if monotonic() > until:
            raise CannotDo(
                "the archive has not read all yet, so its events are not erased: run the command again"
            )
        await asyncio.sleep(_LOOK_SECONDS)
    number = await archiving.archiver.erase(key, of.kept)
    say(f"erase: emptied {number} archived event(s)")


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
