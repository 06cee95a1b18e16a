"""Effects that nobody is done with: an operator looks at them, and has one run; and what was set aside likewise.

cosmos-outbox effects [NAME] [ID] [--json]
cosmos-outbox apply ID [--again REASON]
cosmos-outbox reset-effects NAME [ID [--to PLACE]]
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.cli import operating
from cosmos_outbox.cli.operating import ATTENTION, DONE, CannotDo, in_words, say, say_json
from cosmos_outbox.cli.set_aside import of_record, record_of, which
from cosmos_outbox.inbox.effect_operator import EffectOperator
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.operations.views import effects
from cosmos_outbox.operations.views.names import PathNames
from cosmos_outbox.wiring.located import AnyWired


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """List the effects or show one, and return the exit code."""
    parser = operating.parser(
        "effects",
        "List the effects that may have been handled, are missing, or whose process died, without their events; with "
        "ID show one. Those that wait are messages: cosmos-outbox set-aside.",
        done="nothing is open, or the effect was shown",
        attention="an effect is open, or there is no such effect",
    )
    parser.add_argument(
        "which",
        nargs="*",
        metavar="NAME|ID",
        help="of one subscriber only; one effect, by its id in this list",
    )
    operating.add_json(parser)
    return operating.run_any(parser, _tell, argv, environment)


async def _tell(wired: AnyWired, arguments: Namespace) -> int:
    subscribers, effect_id = which(wired, arguments.which)
    named = operating.names(wired.service)
    if effect_id is not None:
        operator = await of_effect(wired, effect_id, subscribers)
        say_json(effects.shown(await operator.show(effect_id), named))
        return DONE
    operators = {
        name: found for name in subscribers if (found := wired.subscriptions[name].effects) is not None
    }
    view = {name: await _list(operator, named) for name, operator in operators.items()}
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
            "Those that wait are tried every minute, in their turn. Mend the reason, then cosmos-outbox apply ID; or "
            "give one up: cosmos-outbox discard effect ID --reason TEXT; or what it waits for: discard missing ID"
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


async def of_effect(wired: AnyWired, effect_id: str, subscribers: Sequence[str] = ()) -> EffectOperator:
    """The work on the effects of that subscriber which has this open one: of these only, or of any.

    Raises CannotDo, NotSetAside, StoreAway.
    """
    if not operating.is_id(effect_id):
        raise CannotDo(f"no effect has the id {effect_id!r}: take an id from cosmos-outbox effects")
    for name in subscribers or wired.subscriptions:
        operator = wired.subscriptions[name].effects
        if operator is None:
            continue
        try:
            await operator.show(effect_id)
        except NotSetAside:
            continue
        return operator
    raise NotSetAside(
        f"no open effect has the id {effect_id}: it is over, or take an id from cosmos-outbox effects"
    )


def apply_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Try one record or one effect now, and return the exit code."""
    parser = operating.parser(
        "apply",
        "Try one message that was set aside now, after those of its aggregate that come earlier; or run an effect.",
        done="it is applied",
        attention="it cannot be applied, or there is no such record or effect",
    )
    parser.add_argument("id", metavar="ID", help="from cosmos-outbox set-aside, or cosmos-outbox effects")
    parser.add_argument(
        "--again",
        metavar="REASON",
        help="run an effect that may have been handled once more, for this reason; write nothing personal into it",
    )
    return operating.run_any(parser, _apply, argv, environment)


async def _apply(wired: AnyWired, arguments: Namespace) -> int:
    wanted = record_of(arguments.id)
    try:
        retrier = await of_record(wired, wanted)
    except NotSetAside as no_record:
        try:
            operator = await of_effect(wired, wanted)
        except NotSetAside:
            raise no_record from None
        await operator.apply(wanted, arguments.again)
    else:
        await retrier.apply(wanted)
    say(f"{wanted} is applied")
    return DONE


def reset_main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Reset a subscriber, and return the exit code."""
    parser = operating.parser(
        "reset-effects",
        "After a restore of the publisher's store, with the subscriber stopped: every aggregate whose effects are "
        "ahead of it goes on behind its last event; with ID one aggregate.",
        done="it is reset",
        attention="nobody tells the place, or an effect is running",
    )
    parser.add_argument("name", metavar="NAME", help="the subscriber with effects")
    parser.add_argument("id", metavar="ID", nargs="?", help="of one aggregate")
    parser.add_argument("--to", type=int, metavar="PLACE", help="the sequence behind which it goes on")
    return operating.run_any(parser, _reset, argv, environment)


async def _reset(wired: AnyWired, arguments: Namespace) -> int:
    found = wired.subscriptions.get(arguments.name)
    if found is None or found.effects is None:
        raise CannotDo(f"{wired.service.name} has no effects named {arguments.name}")
    if arguments.to is not None and (arguments.id is None or arguments.to < 0):
        raise CannotDo("--to is a place of one aggregate: name its ID")
    say(f"{await found.effects.reset(arguments.id, arguments.to)} aggregate(s) were reset")
    return DONE
