"""Effects that nobody is done with: an operator looks at them, gives one up, and resets them after a restore.

cosmos-outbox effects [NAME] [--json]
cosmos-outbox reset-effects NAME [ID --to PLACE]
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import ATTENTION, DONE, CannotDo, in_words, say, say_json
from cosmos_outbox.inbox.effect_operator import EffectOperator
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.operations.views import effects
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.wiring.located import AnyWired


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the effects, and return the exit code."""
    parser = operating.parser(
        "effects",
        "List the effects that may have been handled, or whose events are missing. Those that wait, or are to run "
        "again, are messages: cosmos-outbox set-aside.",
        done="nothing is open",
        attention="an effect is open",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="of one subscriber only")
    operating.add_json(parser)
    return operating.run_any(parser, _tell, argv, environment)


async def _tell(wired: AnyWired, arguments: Namespace) -> int:
    named, name = operating.names(wired.service), arguments.name
    chosen = _operators(wired) if name is None else {name: _operator(wired, name)}
    view = {each: await _list(operator, named) for each, operator in chosen.items()}
    if arguments.json:
        say_json({name: {"items": items} for name, items in view.items()})
        return ATTENTION if any(view.values()) else DONE
    for name, items in view.items():
        for item in items:
            say(f"{name}: {_line(item)}")
        say(f"{name}: {len(items)} open effect(s)")
    if not view:
        say(f"{wired.service.name} has no effects there")
    if any(view.values()):
        say(
            "To run one, cosmos-outbox apply the message of its event that was set aside, or publish the event again; "
            "or give it up: cosmos-outbox discard effect ID --reason TEXT"
        )
    return ATTENTION if any(view.values()) else DONE


async def _list(operator: EffectOperator, named: Sequence[PathNames]) -> Sequence[Mapping[str, Any]]:
    return [
        item
        async for page in operating.all_pages(operator.page)
        for item in effects.listed(page, named)["items"]
    ]


def _line(item: Mapping[str, Any]) -> str:
    of = f"place {item['sequence']} of {item['aggregateType']}"
    return f"{item['id']}  {item['state']}  {of}, for {in_words(item['ageSeconds'])}: {item['reason']}"


def _operators(wired: AnyWired) -> Mapping[str, EffectOperator]:
    return {name: found for name, each in wired.subscriptions.items() if (found := each.effects) is not None}


def _operator(wired: AnyWired, name: str) -> EffectOperator:
    found = _operators(wired).get(name)
    if found is None:
        raise CannotDo(f"{wired.service.name} has no effects named {name}")
    return found


async def discard_effect(wired: AnyWired, effect_id: str, reason: str) -> None:
    """Give up the effect, of whichever subscriber it is. Raises CannotDo, NotSetAside, NotInTurn, StoreAway."""
    if not operating.is_id(effect_id):
        raise CannotDo(f"no effect has the id {effect_id!r}: take an id from cosmos-outbox effects")
    for operator in _operators(wired).values():
        with suppress(NotSetAside):
            return await operator.discard(effect_id, reason)
    raise NotSetAside(
        f"no open effect has the id {effect_id}: it is over, or take an id from cosmos-outbox effects"
    )


def reset_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Reset a subscriber, and return the exit code."""
    parser = operating.parser(
        "reset-effects",
        "After a restore of the publisher's store, with the subscriber stopped: every aggregate whose effects are "
        "ahead of it goes on behind its last event; with ID and --to one aggregate goes on behind that place.",
        done="it is reset",
        attention="nobody tells the places, or an effect is running",
    )
    parser.add_argument("name", metavar="NAME", help="the subscriber with effects")
    parser.add_argument("id", metavar="ID", nargs="?", help="of one aggregate")
    parser.add_argument("--to", type=int, metavar="PLACE", help="the sequence behind which it goes on")
    return operating.run_any(parser, _reset, argv, environment)


async def _reset(wired: AnyWired, arguments: Namespace) -> int:
    operator, to = _operator(wired, arguments.name), arguments.to
    if (to is None) != (arguments.id is None) or (to is not None and to < 0):
        raise CannotDo("--to is a place of one aggregate: name its ID, and the place")
    say(f"{await operator.reset(arguments.id, to or 0)} aggregate(s) were reset")
    return DONE
