"""The stored and the parked events of one aggregate, and where each stands.

cosmos-outbox events TYPE ID [--before SEQUENCE] [--json]
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cli import command
from cosmos_outbox.cli.command import AT_ONCE, DONE, CannotDo, say, say_json
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations import views
from cosmos_outbox.service import Wired


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the events, and return the exit code."""
    parser = command.parser(
        "events",
        "List the stored and the parked events of one aggregate, the newest first; older ones with --before.",
        done="listed",
        attention="no event is stored or parked",
    )
    parser.add_argument("type", metavar="TYPE", help="the aggregate's type, such as booking")
    parser.add_argument("id", metavar="ID", help="the aggregate's id")
    parser.add_argument("--before", type=int, metavar="SEQUENCE", help="only events before this one")
    command.add_json(parser)
    return command.run(parser, _list, argv, environment)


async def _list(wired: Wired, arguments: Namespace) -> int:
    publisher, types = command.publisher(wired), wired.service.aggregate_types
    if arguments.type not in types:
        raise CannotDo(
            f"{wired.service.name} has no aggregates of type {arguments.type}; it has: {', '.join(types)}"
        )
    key = AggregateKey(arguments.type, arguments.id)
    view = views.event_list(await publisher.operator.event_list.page(key, AT_ONCE, arguments.before))
    if arguments.json:
        say_json(view)
        return DONE
    for event in view["items"]:
        say(_line(event))
    if view["before"] is not None:
        say(f"older ones: add --before {view['before']}")
    return DONE


def _line(event: Mapping[str, Any]) -> str:
    state = f"{event['state']} as {event['stuckId']}" if event["stuckId"] else event["state"]
    at = f" at {event['createdAt']}" if event["createdAt"] else ""
    return f"{event['sequence'] or '-'}: {event['action'] or 'unreadable'}{at}: {state}"
