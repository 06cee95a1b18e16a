"""Lists the stored and the parked events of one aggregate, each with where it stands.

cosmos-outbox events TYPE ID [--before SEQUENCE] [--json]
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import DONE, say, say_json
from cosmos_outbox.operations.views import events
from cosmos_outbox.wiring.service import Wired

_AT_ONCE = 100


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the events, and return the exit code."""
    parser = operating.parser(
        "events",
        "List the stored and the parked events of one aggregate, the newest first; older ones with --before.",
        done="listed",
        attention="no event is stored or parked",
    )
    operating.add_aggregate(parser)
    parser.add_argument("--before", type=int, metavar="SEQUENCE", help="only events before this one")
    operating.add_json(parser)
    return operating.run(parser, _list, argv, environment)


async def _list(wired: Wired, arguments: Namespace) -> int:
    key = operating.aggregate(wired.service, arguments.type, arguments.id)
    page = await wired.outbox.event_list.page(key, _AT_ONCE, arguments.before)
    view = events.listed(page, operating.names(wired.service))
    if arguments.json:
        say_json(view)
        return DONE
    for event in view["items"]:
        say(_line(event))
    if view["before"] is not None:
        say(f"older ones: add --before {view['before']}")
    return DONE


def _line(event: Mapping[str, Any]) -> str:
    state = f"{event['state']} as {event['parkingId']}" if event["parkingId"] else event["state"]
    return f"{event['sequence'] or '-'}: {event['action']} at {event['createdAt']}: {state}"
