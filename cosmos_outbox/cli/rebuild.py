"""Fills or repairs a read model from its sources; stopped at any point, it goes on from there within a day.

cosmos-outbox rebuild [NAME] [--source-wins]
cosmos-outbox rebuild [NAME] --id ID ...
"""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence

from cosmos_outbox.cli import command
from cosmos_outbox.cli.command import ATTENTION, DONE, CannotDo, say
from cosmos_outbox.inbox.healing import WalkProgress
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.subscriber import Subscription
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import Misconfigured


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Rebuild, show how far it is, and return the exit code."""
    parser = command.parser(
        "rebuild",
        "Fill or repair a read model of the service from its sources.",
        "all entries are as their sources",
        "some could not be read: run it again",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="of a service with several read models: which one"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--source-wins",
        action="store_true",
        help="after a restore: entries may go back. Only with the subscriber stopped and the topic drained",
    )
    which.add_argument(
        "--id",
        action="append",
        metavar="ID",
        help="of these aggregates alone, also of one without an entry: a service that only subscribes cannot list them",
    )
    return command.run(parser, _rebuild, argv, environment, log_level=logging.ERROR)


async def _rebuild(wired: Wired, arguments: Namespace) -> int:
    """Another team's aggregates are not listed without ``--id``: only the entries are compared then."""
    name, subscription = _which(wired, arguments.name)
    model, healing = subscription.read_model, subscription.healing
    assert model is not None and healing is not None, "it is the name of one that has a source"  # noqa: PT018
    if arguments.id:
        [kind] = [each.aggregate_type for each in wired.service.subscribers if each.name == name]
        for each in arguments.id:
            await model.inbox.heal(AggregateKey(kind, each))
        say(f"{len(arguments.id)} are as their sources")
        return DONE
    in_place = sys.stdout.isatty()

    def report(progress: WalkProgress) -> None:
        say(in_a_line(progress), end="\r" if in_place and progress.side else "\n")

    ended = await healing.rebuild(report, source_wins=arguments.source_wins)
    if ended.side is not None:
        raise CannotDo(
            "another rebuild is at it, or an answer of the store was lost. Run the same command again when no other "
            "one runs"
        )
    return DONE if ended.last_counts is not None and not ended.last_counts.failed else ATTENTION


def _which(wired: Wired, name: str | None) -> tuple[str, Subscription]:
    """The read model of this name, or the only one. Raises Misconfigured."""
    models = {name: each for name, each in wired.subscriptions.items() if each.read_model is not None}
    if name is None and len(models) == 1:
        [name] = models
    if name is None or name not in models:
        known = ", ".join(models) or "none"
        raise Misconfigured(
            f"the read models of {wired.service.name} are: {known}. Name one of them: rebuild NAME"
        )
    if models[name].healing is None:
        raise Misconfigured(
            f"{name} has no source: ask the team that publishes to publish the events of that time again"
        )
    return name, models[name]


def in_a_line(progress: WalkProgress) -> str:
    """How far it is, and what was found. The sources come first."""
    counts = progress.counts if progress.side else progress.last_counts or progress.counts
    written = counts.healed + counts.rewritten
    return f"{counts.sources} sources and {counts.entries} entries compared, {written} written, {counts.failed} failed"
