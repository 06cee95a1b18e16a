"""What became of the events of one aggregate, for each destination; the properties they carry are told by name alone.

cosmos-outbox history TYPE ID [--json]
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import DONE, say, say_json
from cosmos_outbox.operations.past_events import EventState
from cosmos_outbox.operations.views import history
from cosmos_outbox.wiring.service import Wired

_AT_ONCE = 100
_WORDS = {EventState.NOT_FOR_IT: "not for it"}


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Tell the history, and return the exit code."""
    parser = operating.parser(
        "history",
        "Tell what became of the events of one aggregate, the newest first; of older ones with --before.",
        done="told",
        attention="nothing is known of the aggregate",
    )
    operating.add_aggregate(parser)
    parser.add_argument("--before", type=int, metavar="SEQUENCE", help="only events before this one")
    operating.add_json(parser)
    return operating.run(parser, _tell, argv, environment)


async def _tell(wired: Wired, arguments: Namespace) -> int:
    key = operating.aggregate(wired.service, arguments.type, arguments.id)
    past = await wired.outbox.past().page(key, _AT_ONCE, arguments.before)
    view = history.told(past, operating.names(wired.service))
    if arguments.json:
        say_json(view)
        return DONE
    last = view["lastSequence"]
    gone = ", deleted" if view["deleted"] else ""
    say(f"{key}: {'its document is gone' if last is None else f'last sequence {last}'}{gone}")
    for event in view["events"]:
        say(_line(event))
    for span in view["expired"]:
        say(f"{span['first']} to {span['last']}: expired")
    if view["before"] is not None:
        say(f"older ones: add --before {view['before']}")
    return DONE


def _line(event: Mapping[str, Any]) -> str:
    changed = ", ".join(event["changed"])
    what = f"{event['sequence'] or '-'}: {event['action']} ({changed})"
    beside = "".join(f"; {each['name']}: {_place(each)}" for each in event["destinations"])
    return f"{what} at {event['createdAt']}: {_place(event)}{beside}"


def _place(of: Mapping[str, Any]) -> str:
    state = _WORDS.get(of["state"], of["state"])
    return f"{state} as {of['parkingId']}" if of["parkingId"] else state
