"""List what is stuck, or the events of one aggregate; have it tried again once its cause is mended, or give it up.

cosmos-outbox stuck [list] [--discarded] [--json]
cosmos-outbox stuck show ID
cosmos-outbox retry ID
cosmos-outbox discard ID --reason TEXT
cosmos-outbox events TYPE ID [--before SEQUENCE] [--json]
"""

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from cosmos_outbox.cli import command
from cosmos_outbox.cli.command import ATTENTION, DONE, CannotDo, say, say_json
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.stuck import LONGEST_REASON, Stuck, StuckList, StuckPage
from cosmos_outbox.service import Wired


def stuck_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List what is stuck or show one, and return the exit code."""
    parser = command.parser(
        "stuck",
        "List the events that cannot be sent, and the messages and effects that were set aside, without what they "
        "carry; show ID: one, with it.",
        "nothing is stuck, or it was shown",
        "something is stuck, or nothing has this id",
    )
    parser.add_argument("verb", nargs="?", choices=["list", "show"], default="list")
    parser.add_argument("id", nargs="?", metavar="ID", help="of the one to be shown, from the list")
    parser.add_argument("--discarded", action="store_true", help="list the events that were given up instead")
    command.add_json(parser)
    return command.run(parser, _show, argv, environment)


async def _all(stuck: StuckList, *, discarded: bool) -> AsyncIterator[Stuck]:
    token: str | None = None
    while True:
        page = await stuck.page(command.AT_ONCE, token, discarded=discarded)
        for each in page.items:
            yield each
        token = page.continuation_token
        if token is None:
            return


async def _show(wired: Wired, arguments: Namespace) -> int:
    stuck = wired.stuck
    if arguments.verb == "show":
        say_json((await stuck.show(arguments.id or "")).whole_view())
        return DONE
    items = [item async for item in _all(stuck, discarded=arguments.discarded)]
    if arguments.json:
        say_json(StuckPage(items, None).view())
    else:
        for item in items:
            say(_line(item))
        if arguments.discarded:
            say(f"{len(items)} event(s) discarded")
        elif items:
            say(
                f"{len(items)} stuck. Mend the reason, then cosmos-outbox retry ID; or cosmos-outbox discard ID"
            )
        else:
            say("nothing is stuck")
    return ATTENTION if items and not arguments.discarded else DONE


def _line(item: Stuck) -> str:
    what = f"{item.kind} {item.action or 'unreadable'} {item.sequence or '-'} of {item.aggregate or 'no aggregate'}"
    by = f" at {item.subscriber}" if item.subscriber else ""
    why = item.discarding.reason if item.discarding else item.reason
    since = item.since.isoformat(timespec="seconds")
    return f"{item.id}  {item.state:<9}  {what}{by}, since {since}, {item.attempts} attempt(s): {why}"


def retry_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Try what is stuck now, and return the exit code."""
    parser = command.parser(
        "retry",
        "Send the parked events of this one's aggregate, in order; or apply a message that was set aside, after those "
        "of its aggregate that come earlier. An effect that may have been done is run again: ask the service that it "
        "calls before.",
        "all of it is sent, or it is applied",
        "something of it is refused again, others are at it, or nothing has this id",
    )
    parser.add_argument("id", metavar="ID", help="from cosmos-outbox stuck")
    return command.run(parser, _retry, argv, environment)


async def _retry(wired: Wired, arguments: Namespace) -> int:
    retried = await wired.stuck.retry(arguments.id, to_the_end=True)
    say(
        f"{retried.count} sent or applied"
        + ("" if retried.done else "; more remain: run the same command again")
    )
    return DONE if retried.done else ATTENTION


def discard_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Give up an event or a message for good, and return the exit code. The reason stays to be read."""
    parser = command.parser(
        "discard",
        "Give up a parked event, in whose place subscribers get a skip marker, or a message that was set aside. It "
        "cannot be taken back.",
        "it is given up",
        "it waits behind another one, or nothing has this id",
    )
    parser.add_argument("id", metavar="ID", help="from cosmos-outbox stuck")
    parser.add_argument(
        "--reason", type=_reason, required=True, metavar="TEXT", help="why; write nothing personal into it"
    )
    return command.run(parser, _discard, argv, environment)


def _reason(text: str) -> str:
    if not 1 <= len(text.strip()) <= LONGEST_REASON:
        raise ArgumentTypeError(f"a reason has 1 to {LONGEST_REASON} characters")
    return text.strip()


async def _discard(wired: Wired, arguments: Namespace) -> int:
    await wired.stuck.discard(arguments.id, arguments.reason)
    say(f"{arguments.id} is given up: what waited behind it is tried within a minute")
    return DONE


def events_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the events, and return the exit code."""
    parser = command.parser(
        "events",
        "List the stored and the parked events of one aggregate, the newest first; older ones with --before.",
        "listed",
        "the service has no such aggregates",
    )
    parser.add_argument("type", metavar="TYPE", help="the aggregate's type, such as booking")
    parser.add_argument("id", metavar="ID", help="the aggregate's id")
    parser.add_argument("--before", type=int, metavar="SEQUENCE", help="only events before this one")
    command.add_json(parser)
    return command.run(parser, _events, argv, environment, publishes=True)


async def _events(wired: Wired, arguments: Namespace) -> int:
    types = wired.service.aggregate_types
    if arguments.type not in types:
        raise CannotDo(
            f"{wired.service.name} has no aggregates of type {arguments.type}; it has: {', '.join(types)}"
        )
    key = AggregateKey(arguments.type, arguments.id)
    view = (await wired.operator.event_list.page(key, command.AT_ONCE, arguments.before)).view()
    if arguments.json:
        say_json(view)
        return DONE
    for event in view["items"]:
        say(_event_line(event))
    if view["before"] is not None:
        say(f"older ones: add --before {view['before']}")
    return DONE


def _event_line(event: Mapping[str, Any]) -> str:
    state = f"{event['state']} as {event['stuckId']}" if event["stuckId"] else event["state"]
    at = f" at {event['createdAt']}" if event["createdAt"] else ""
    return f"{event['sequence'] or '-'}: {event['action'] or 'unreadable'}{at}: {state}"
