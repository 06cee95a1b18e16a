"""What is stuck: an operator looks at it, mends the cause and has it tried again, or gives it up for good.

cosmos-outbox parked [ID] [--discarded] [--json]
cosmos-outbox replay TYPE ID
cosmos-outbox set-aside [NAME] [ID] [--json]
cosmos-outbox apply ID
cosmos-outbox discard parked|set-aside ID --reason TEXT
cosmos-outbox events TYPE ID [--before SEQUENCE] [--json]
"""

import argparse
import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cosmos_outbox.cli import command
from cosmos_outbox.cli.command import ATTENTION, DONE, CannotDo, in_words, say, say_json
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.operations import views
from cosmos_outbox.wiring.located import AnyWired, operator_names
from cosmos_outbox.wiring.service import Wired

_LONGEST_REASON = 500
"""As the call over HTTP has it."""
_AT_ONCE = 100
_ID = re.compile(r"[0-9a-f]{32}")
"""Of a parked event, or of a record."""


def parked_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the parked events or show one, and return the exit code."""
    parser = command.parser(
        "parked",
        "List the events that cannot be sent, the oldest first, without their documents; with ID show one, with it.",
        done="nothing is parked, or the event was shown",
        attention="events are parked, or there is none of this id",
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="one event, by its id in this list")
    parser.add_argument("--discarded", action="store_true", help="list those that were given up instead")
    command.add_json(parser)
    return command.run(parser, _tell_parked, argv, environment)


async def _tell_parked(wired: Wired, arguments: Namespace) -> int:
    if arguments.id is not None:
        found = await wired.outbox.parking.show(_parking_id(arguments.id))
        say_json(views.parked_event(found, operator_names(wired.service)))
        return DONE
    view = await _list_parked(wired, discarded=arguments.discarded)
    items: list[Mapping[str, Any]] = view["items"]
    if arguments.json:
        say_json(view)
    else:
        for item in items:
            say(_parked_line(item))
        what = "discarded" if arguments.discarded else "parked"
        told = "" if arguments.discarded or not items else _what_to_do(items)
        say(f"{len(items)} event(s) {what}{told}")
    return ATTENTION if items and not arguments.discarded else DONE


def _parking_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise CannotDo(f"no event is parked under {text!r}: take an id from cosmos-outbox parked")
    return text


async def _list_parked(wired: Wired, *, discarded: bool) -> Mapping[str, Any]:
    """All pages in one, as the call over HTTP tells a page."""
    parking, named = wired.outbox.parking, operator_names(wired.service)
    pages = [
        views.parked_list(page, named, parking.max_age_seconds)
        async for page in command.all_pages(partial(parking.page, discarded=discarded))
    ]
    return {**pages[-1], "items": [item for page in pages for item in page["items"]]}


def _parked_line(item: Mapping[str, Any]) -> str:
    where = _owner(item) or "no aggregate"
    of = f"{item['action'] or 'unreadable'} {item['sequence'] or '-'} of {where}"
    why = item.get("discardReason") or item["reason"]
    return f"{item['id']}  {item['state']:<9}  {of}  since {item['parkedAt']}: {why}"


def _owner(item: Mapping[str, Any]) -> str | None:
    kind = item["aggregateType"]
    owner = next(
        (value for name, value in item.items() if name.endswith("Id") and name != "eventId" and value), None
    )
    return f"{kind} {owner}" if kind and owner else None


def _what_to_do(items: Sequence[Mapping[str, Any]]) -> str:
    blocked = next((owner for item in items if item["state"] == "inTheWay" and (owner := _owner(item))), None)
    replay = f"cosmos-outbox replay {blocked or 'TYPE ID'}"
    return f". Mend the reason of what is inTheWay, then {replay}; or give it up with cosmos-outbox discard"


def replay_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Send an aggregate's parked events, and return the exit code."""
    parser = command.parser(
        "replay",
        "Send the parked events of one aggregate, in order, until none is left or one is refused.",
        done="all are sent",
        attention="one is refused again, others are at it, or nothing is parked",
    )
    command.add_aggregate(parser)
    return command.run(parser, _replay, argv, environment)


async def _replay(wired: Wired, arguments: Namespace) -> int:
    key, sent = command.aggregate(wired.service, arguments.type, arguments.id), 0
    while True:
        result = await wired.outbox.parking.replay(key)
        sent += result.replayed
        say(f"{sent} event(s) of {key} sent")
        if result.done:
            return DONE
        if not result.replayed:
            raise CannotDo(
                f"events of {key} remain and none could be sent in time: run the same command again"
            )


def set_aside_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the records of messages that could not be applied or show one, and return the exit code."""
    parser = command.parser(
        "set-aside",
        "List the messages that subscribers could not apply, oldest first, without what they carry; with ID show one.",
        done="nothing is set aside, or the record was shown",
        attention="something is set aside, or there is no such record",
    )
    parser.add_argument(
        "which",
        nargs="*",
        metavar="NAME|ID",
        help="of one subscriber only; one record, by its id in this list",
    )
    command.add_json(parser)
    return command.run_any(parser, _tell_set_aside, argv, environment)


async def _tell_set_aside(wired: AnyWired, arguments: Namespace) -> int:
    subscribers, record_id = _which(wired, arguments.which)
    if record_id is not None:
        retrier = await _of_record(wired, record_id, subscribers)
        say_json(views.set_aside_record(await retrier.show(record_id), operator_names(wired.service)))
        return DONE
    view = {name: await _list_set_aside(wired, name) for name in subscribers}
    if arguments.json:
        say_json({name: {"items": items} for name, items in view.items()})
    else:
        for name, items in view.items():
            for item in items:
                say(f"{name}: {_record_line(item)}")
            say(f"{name}: {len(items)} message(s) set aside")
        if any(view.values()):
            say(
                "Those that wait are tried every minute. Mend the reason, then cosmos-outbox apply ID; or give one up: "
                "cosmos-outbox discard set-aside ID --reason ..."
            )
    return ATTENTION if any(view.values()) else DONE


def _which(wired: AnyWired, given: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The subscribers, and the record, that are asked for. Raises CannotDo."""
    known = list(wired.subscriptions)
    chosen = [each for each in given if each in known]
    ids = [each for each in given if each not in known]
    if len(chosen) > 1 or len(ids) > 1 or not all(map(_ID.fullmatch, ids)):
        raise CannotDo(
            f"{' '.join(given)}: name a subscriber of {wired.service.name} ({', '.join(known) or 'it has none'}), or "
            "an id from the list"
        )
    return chosen or known, next(iter(ids), None)


async def _of_record(wired: AnyWired, record_id: str, subscribers: Sequence[str] = ()) -> Retrier:
    """The work on the records of that subscriber which has this one: an id is of one subscriber alone.

    Raises NotSetAside, StoreAway.
    """
    for name in subscribers or wired.subscriptions:
        retrier = wired.subscriptions[name].subscriber.retrier
        try:
            await retrier.show(record_id)
        except NotSetAside:
            continue
        return retrier
    raise NotSetAside(
        f"no open record has the id {record_id}: it is applied or closed, or take an id from cosmos-outbox set-aside"
    )


async def _list_set_aside(wired: AnyWired, name: str) -> Sequence[Mapping[str, Any]]:
    retrier, named = wired.subscriptions[name].subscriber.retrier, operator_names(wired.service)
    pages = command.all_pages(retrier.page)
    return [item async for page in pages for item in views.set_aside_list(page, named)["items"]]


def _record_line(item: Mapping[str, Any]) -> str:
    of = f"{item['action'] or 'unreadable'} {item['sequence'] or '-'} of {item['aggregateType'] or 'no aggregate'}"
    return f"{item['id']}  {item['state']:<7}  {of}, for {in_words(item['ageSeconds'])}: {item['reason']}"


def _record_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise CannotDo(f"no record has the id {text!r}: take an id from cosmos-outbox set-aside")
    return text


def apply_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Try one record now, and return the exit code."""
    parser = command.parser(
        "apply",
        "Try one message that was set aside now, after those of its aggregate that come earlier. An effect that may "
        "have been handled is run again: ask the service that it calls before.",
        done="it is applied",
        attention="it cannot be applied, or there is no such record",
    )
    parser.add_argument("id", metavar="ID", help="from cosmos-outbox set-aside")
    return command.run_any(parser, _apply, argv, environment)


async def _apply(wired: AnyWired, arguments: Namespace) -> int:
    record = _record_id(arguments.id)
    await (await _of_record(wired, record)).apply(record)
    say(f"{record} is applied")
    return DONE


def discard_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Give up an event or a message for good, and return the exit code. The reason stays to be read."""
    parser = command.parser(
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
    return command.run_any(parser, _discard, argv, environment)


def _reason(text: str) -> str:
    if not 1 <= len(text.strip()) <= _LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"a reason has 1 to {_LONGEST_REASON} characters")
    return text.strip()


async def _discard(wired: AnyWired, arguments: Namespace) -> int:
    if arguments.what == "set-aside":
        record = _record_id(arguments.id)
        await (await _of_record(wired, record)).discard(record, arguments.reason)
        say(f"{record} is given up")
        return DONE
    if not isinstance(wired, Wired):
        raise CannotDo(f"{wired.service.name} only subscribes: events are parked where they are published")
    await wired.outbox.parking.discard(_parking_id(arguments.id), arguments.reason)
    say(
        f"{arguments.id} is given up: the relay's timer, or cosmos-outbox replay, sends what waited behind it"
    )
    return DONE


def events_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the stored and the parked events of one aggregate, each with where it stands; return the exit code."""
    parser = command.parser(
        "events",
        "List the stored and the parked events of one aggregate, the newest first; older ones with --before.",
        done="listed",
        attention="no event is stored or parked",
    )
    command.add_aggregate(parser)
    parser.add_argument("--before", type=int, metavar="SEQUENCE", help="only events before this one")
    command.add_json(parser)
    return command.run(parser, _list_events, argv, environment)


async def _list_events(wired: Wired, arguments: Namespace) -> int:
    key = command.aggregate(wired.service, arguments.type, arguments.id)
    page = await wired.outbox.event_list.page(key, _AT_ONCE, arguments.before)
    view = views.event_list(page, operator_names(wired.service))
    if arguments.json:
        say_json(view)
        return DONE
    for event in view["items"]:
        say(_event_line(event))
    if view["before"] is not None:
        say(f"older ones: add --before {view['before']}")
    return DONE


def _event_line(event: Mapping[str, Any]) -> str:
    state = f"{event['state']} as {event['parkingId']}" if event["parkingId"] else event["state"]
    at = f" at {event['createdAt']}" if event["createdAt"] else ""
    return f"{event['sequence'] or '-'}: {event['action'] or 'unreadable'}{at}: {state}"
