"""A contact's data is erased, step by step, and what could not be erased is told; cut off, the same command goes on.

    python -m infra.erase_contact ID [--wait SECONDS]

Exit code 0: erased; 1: not, or not all, as the last line says: run it again; 2: a setting is missing or wrong.
"""

from infra import installed

if __name__ == "__main__":
    installed.require("erase")

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from uuid import UUID

from domain.contact import Contact
from infra.bootstrap import wire
from infra.contacts.erasing import wire_eraser
from infra.erasing import ERASING_ERRORS
from infra.errors import Misconfigured
from infra.settings import Settings, load
from outbox.aggregate import AggregateKey

ERASED, NOT_ALL, MISCONFIGURED = 0, 1, 2

WAIT_SECONDS = 60


async def erase(contact_id: UUID, settings: Settings, wait_seconds: float) -> None:
    """Erase a contact, saying each step. Raises Misconfigured and what :meth:`infra.erasing.Eraser.erase` raises."""
    application = wire(settings)
    key = AggregateKey(Contact.aggregate_type, str(contact_id))
    async with application.outbox.resources:
        async for step in wire_eraser(settings, application).erase(key, patience_seconds=wait_seconds):
            _say(step)


def left(settings: Settings) -> Sequence[str]:
    """What the command cannot erase, and when it goes by itself."""
    return (
        f"the empty tombstone of the contact: its id and times, for up to {settings.event_ttl_seconds} s",
        f"digests of requests with an Idempotency-Key: for up to {settings.idempotency_ttl_seconds} s",
        "messages that a subscription still holds: until they are received or expire",
        "what other subscribers have stored: the ContactDeletedEvent tells them",
        "logs: they hold ids alone, until their retention is over",
        "backups: until they are too old to be restored; after a restore, run this command again",
    )


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Erase, and return the exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(logging.CRITICAL)  # the last line tells a failure once
    try:
        settings = load(environment)
        asyncio.run(erase(arguments.id, settings, arguments.wait))
    except Misconfigured as error:
        print(f"erase: {error}", file=sys.stderr)
        return MISCONFIGURED
    except ERASING_ERRORS as error:
        print(f"erase: {error}", file=sys.stderr)
        return NOT_ALL
    except KeyboardInterrupt:
        print("erase: interrupted: run the same command again, it goes on from here", file=sys.stderr)
        return NOT_ALL
    _say("erased. What is left:")
    for line in left(settings):
        _say(f"- {line}")
    return ERASED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.erase_contact",
        description="Delete a contact and erase the person's data from every container. It cannot be taken back.",
        epilog="Exit code 0: erased, 1: not all, run it again, 2: a setting is missing or wrong.",
    )
    parser.add_argument("id", type=_uuid, metavar="ID", help="the contact's id, a UUID")
    parser.add_argument(
        "--wait",
        type=int,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"how long to wait until the relay has forwarded the contact's events (default: {WAIT_SECONDS})",
    )
    return parser


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no UUID") from None


def _say(line: str) -> None:
    print(f"erase: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
