"""Events that cannot be sent: an operator looks at them, sends them after mending the cause, or gives one up.

cosmos-outbox parked [ID] [--discarded] [--json]
cosmos-outbox replay TYPE ID
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import ATTENTION, DONE, CannotDo, say, say_json
from cosmos_outbox.operations.views import parked
from cosmos_outbox.wiring.service import Wired


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the parked events or show one, and return the exit code."""
    parser = operating.parser(
        "parked",
        "List the events that cannot be sent, the oldest first, without their documents; with ID show one, with it.",
        done="nothing is parked, or the event was shown",
        attention="events are parked, or there is none of this id",
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="one event, by its id in this list")
    parser.add_argument("--discarded", action="store_true", help="list those that were given up instead")
    operating.add_json(parser)
    return operating.run(parser, _tell, argv, environment)


async def _tell(wired: Wired, arguments: Namespace) -> int:
    if arguments.id is not None:
        parking = wired.outbox.parking
        view = parked.shown(await parking.show(parking_id(arguments.id)), operating.names(wired.service))
        say_json(view)
        return DONE
    view = await _list(wired, discarded=arguments.discarded)
    items: list[Mapping[str, Any]] = view["items"]
    if arguments.json:
        say_json(view)
    else:
        for item in items:
            say(_line(item))
        what = "discarded" if arguments.discarded else "parked"
        told = "" if arguments.discarded or not items else _what_to_do(items)
        say(f"{len(items)} event(s) {what}{told}")
    return ATTENTION if items and not arguments.discarded else DONE


def parking_id(text: str) -> str:
    """The id. Raises CannotDo: no parked event can have it."""
    if not operating.is_id(text):
        raise CannotDo(f"no event is parked under {text!r}: take an id from cosmos-outbox parked")
    return text


async def _list(wired: Wired, *, discarded: bool) -> Mapping[str, Any]:
    """All pages in one, as the call over HTTP tells a page."""
    parking, named = wired.outbox.parking, operating.names(wired.service)
    views = [
        parked.listed(page, named, parking.max_age_seconds)
        async for page in operating.all_pages(partial(parking.page, discarded=discarded))
    ]
    return {**views[-1], "items": [item for view in views for item in view["items"]]}


def _line(item: Mapping[str, Any]) -> str:
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
    replay = f"cosmos-outbox replay {blocked}" if blocked else "cosmos-outbox replay TYPE ID"
    return f". Mend the reason of what is inTheWay, then {replay}; or give it up with cosmos-outbox discard"


def replay_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Send an aggregate's parked events, and return the exit code."""
    parser = operating.parser(
        "replay",
        "Send the parked events of one aggregate, in order, until none is left or one is refused.",
        done="all are sent",
        attention="one is refused again, others are at it, or nothing is parked",
    )
    operating.add_aggregate(parser)
    return operating.run(parser, _replay, argv, environment)


async def _replay(wired: Wired, arguments: Namespace) -> int:
    key = operating.aggregate(wired.service, arguments.type, arguments.id)
    parking, sent = wired.outbox.parking, 0
    while True:
        view = parked.replayed(await parking.replay(key))
        sent += view["replayed"]
        say(f"{sent} event(s) of {key} sent")
        if not view["remaining"]:
            return DONE
        if not view["replayed"]:
            raise CannotDo(
                f"events of {key} remain and none could be sent in time: run the same command again"
            )
