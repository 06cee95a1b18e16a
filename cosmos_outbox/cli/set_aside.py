"""Messages that a subscriber could not apply: an operator looks at them, has one tried again, or gives one up.

cosmos-outbox set-aside [NAME] [ID] [--json]
cosmos-outbox apply ID
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import ATTENTION, DONE, CannotDo, in_words, say, say_json
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.operations.views import set_aside
from cosmos_outbox.wiring.located import AnyWired


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the records or show one, and return the exit code."""
    parser = operating.parser(
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
    operating.add_json(parser)
    return operating.run_any(parser, _tell, argv, environment)


async def _tell(wired: AnyWired, arguments: Namespace) -> int:
    subscribers, record_id = which(wired, arguments.which)
    if record_id is not None:
        retrier = await of_record(wired, record_id, subscribers)
        say_json(set_aside.shown(await retrier.show(record_id), operating.names(wired.service)))
        return DONE
    view = {name: await _list(wired, name) for name in subscribers}
    if arguments.json:
        say_json({name: {"items": items} for name, items in view.items()})
    else:
        for name, items in view.items():
            for item in items:
                say(f"{name}: {_line(item)}")
            say(f"{name}: {len(items)} message(s) set aside")
        if any(view.values()):
            say(
                "Those that wait are tried every minute. Mend the reason, then cosmos-outbox apply ID; or give one up: "
                "cosmos-outbox discard set-aside ID --reason ..."
            )
    return ATTENTION if any(view.values()) else DONE


def which(wired: AnyWired, given: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The subscribers, and the record, that are asked for. Raises CannotDo."""
    known = list(wired.subscriptions)
    chosen = [each for each in given if each in known]
    ids = [each for each in given if each not in known]
    if len(chosen) > 1 or len(ids) > 1 or not all(map(operating.is_id, ids)):
        raise CannotDo(
            f"{' '.join(given)}: name a subscriber of {wired.service.name} ({', '.join(known) or 'it has none'}), or "
            "an id from the list"
        )
    return chosen or known, next(iter(ids), None)


async def of_record(wired: AnyWired, record_id: str, subscribers: Sequence[str] = ()) -> Retrier:
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


async def _list(wired: AnyWired, name: str) -> Sequence[Mapping[str, Any]]:
    retrier, named = wired.subscriptions[name].subscriber.retrier, operating.names(wired.service)
    return [
        item
        async for page in operating.all_pages(retrier.page)
        for item in set_aside.listed(page, named)["items"]
    ]


def _line(item: Mapping[str, Any]) -> str:
    of = f"{item['action'] or 'unreadable'} {item['sequence'] or '-'} of {item['aggregateType'] or 'no aggregate'}"
    return f"{item['id']}  {item['state']:<7}  {of}, for {in_words(item['ageSeconds'])}: {item['reason']}"


def apply_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Try one record now, and return the exit code."""
    parser = operating.parser(
        "apply",
        "Try one message that was set aside now, after those of its aggregate that come earlier. An effect that may "
        "have been handled is run again: ask the service that it calls before.",
        done="it is applied",
        attention="it cannot be applied, or there is no such record",
    )
    parser.add_argument("id", metavar="ID", help="from cosmos-outbox set-aside")
    return operating.run_any(parser, _apply, argv, environment)


async def _apply(wired: AnyWired, arguments: Namespace) -> int:
    record = record_of(arguments.id)
    await (await of_record(wired, record)).apply(record)
    say(f"{record} is applied")
    return DONE


def record_of(text: str) -> str:
    """The id. Raises CannotDo: no record can have it."""
    if not operating.is_id(text):
        raise CannotDo(f"no record has the id {text!r}: take an id from cosmos-outbox set-aside")
    return text
