"""An event or a message is given up for good, with the reason, which stays to be read.

cosmos-outbox discard parked|set-aside ID --reason TEXT
"""

import argparse
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import DONE, CannotDo, say
from cosmos_outbox.cli.parked import parking_id
from cosmos_outbox.cli.set_aside import of_record, record_of
from cosmos_outbox.wiring.located import AnyWired
from cosmos_outbox.wiring.service import Wired

LONGEST_REASON = 500
"""As the call over HTTP has it."""


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Give it up, and return the exit code."""
    parser = operating.parser(
        "discard",
        "Give up a parked event, in whose place subscribers get a notice, or a message that was set aside. It "
        "cannot be taken back.",
        done="it is given up",
        attention="it is not in the way, or there is none of this id",
    )
    parser.add_argument("what", choices=["parked", "set-aside"])
    parser.add_argument("id", metavar="ID", help="from cosmos-outbox parked or set-aside")
    parser.add_argument(
        "--reason", type=_reason, required=True, metavar="TEXT", help="why; write nothing personal into it"
    )
    return operating.run_any(parser, _discard, argv, environment)


def _reason(text: str) -> str:
    if not 1 <= len(text.strip()) <= LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"a reason has 1 to {LONGEST_REASON} characters")
    return text.strip()


async def _discard(wired: AnyWired, arguments: Namespace) -> int:
    if arguments.what == "parked":
        if not isinstance(wired, Wired):
            raise CannotDo(
                f"{wired.service.name} only subscribes: events are parked where they are published"
            )
        parking = wired.outbox.parking
        await parking.discard(parking_id(arguments.id), arguments.reason)
        say(
            f"{arguments.id} is given up: the relay's timer, or cosmos-outbox replay, sends what waited behind it"
        )
        return DONE
    record = record_of(arguments.id)
    await (await of_record(wired, record)).discard(record, arguments.reason)
    say(f"{record} is given up")
    return DONE
