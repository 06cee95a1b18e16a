"""Fills or repairs a read model from its sources; stopped at any point, it goes on from there within a day.

    cosmos-outbox rebuild [NAME] [--source-wins]
    cosmos-outbox rebuild [NAME] --id ID ...

Exit code 0: all entries are as their sources; 1: some could not be read, or the store went away: run it again; 2: a
setting is missing or wrong.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from cosmos_outbox.cli import command
from cosmos_outbox.inbox.errors import InboxError, StoreUnavailable
from cosmos_outbox.inbox.healing import WalkProgress
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.errors import Misconfigured


async def rebuild(
    environment: Mapping[str, str],
    *,
    source_wins: bool,
    report: Callable[[WalkProgress], None],
    service: Service,
    name: str | None = None,
) -> WalkProgress:
    """Rebuild to the end; ``report`` gets the progress after each page.

    Another team's aggregates are not listed here, so only the entries are checked.
    Raises Misconfigured, StoreUnavailable.
    """
    wired = service.wire(environment)
    healing = wired.subscriptions[_which(wired, name)].healing
    assert healing is not None, "it is the name of one that has a source"
    async with wired.resources:
        return await healing.rebuild(report, source_wins=source_wins)


async def heal(
    environment: Mapping[str, str], service: Service, name: str | None, aggregates: Sequence[str]
) -> None:
    """Put these aggregates' entries right, also those that are missing. Raises Misconfigured, InboxError."""
    wired = service.wire(environment)
    name = _which(wired, name)
    model = wired.subscriptions[name].read_model
    assert model is not None, "it is the name of one"
    [kind] = [each.aggregate_type for each in service.subscribers if each.name == name]
    async with wired.resources:
        for each in aggregates:
            await model.inbox.heal(AggregateKey(kind, each))


def _which(wired: Wired, name: str | None) -> str:
    """The read model of this name, or the only one. Raises Misconfigured."""
    models = [name for name, each in wired.subscriptions.items() if each.read_model is not None]
    if name is None and len(models) == 1:
        [name] = models
    if name is None or name not in models:
        known = ", ".join(models) or "none"
        raise Misconfigured(
            f"the read models of {wired.service.name} are: {known}. Name one of them: rebuild NAME"
        )
    if wired.subscriptions[name].healing is None:
        raise Misconfigured(
            f"{name} has no source: ask the team that publishes to publish the events of that time again"
        )
    return name


def in_a_line(progress: WalkProgress) -> str:
    """How far it is, and what was found. The sources come first."""
    counts = progress.counts if progress.side else progress.last_counts or progress.counts
    written = counts.healed + counts.rewritten
    return f"{counts.sources} sources and {counts.entries} entries compared, {written} written, {counts.failed} failed"


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Rebuild, show how far it is, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="cosmos-outbox rebuild",
        description="Fill or repair a read model of the service from its sources.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="of a service with several read models: which one"
    )
    parser.add_argument(
        "--source-wins",
        action="store_true",
        help="after a restore: entries may go back. Only with the subscriber stopped and the topic drained",
    )
    parser.add_argument(
        "--id",
        action="append",
        default=[],
        metavar="ID",
        help="of these aggregates alone, also of one without an entry: a service that only subscribes cannot list them",
    )
    command.add_argument(parser)
    arguments = parser.parse_args(argv)
    if arguments.id and arguments.source_wins:
        parser.error("--source-wins is for all entries: leave --id out")
    command.log_to_stderr(logging.ERROR)
    in_place = sys.stdout.isatty()

    def report(progress: WalkProgress) -> None:
        command.say(in_a_line(progress), end="\r" if in_place and progress.side else "\n")

    try:
        service = command.any_service(arguments, environment)
        if arguments.id:
            asyncio.run(heal(environment, service, arguments.name, arguments.id))
            command.say(f"{len(arguments.id)} are as their sources")
            return 0
        work = rebuild(
            environment,
            source_wins=arguments.source_wins,
            report=report,
            service=service,
            name=arguments.name,
        )
        ended = asyncio.run(work)
    except Misconfigured as error:
        command.say_error(f"rebuild: {error}")
        return 2
    except InboxError as error:
        goes_on = "" if arguments.source_wins else ": it goes on from here"
        hint = f". Run the same command again{goes_on}" if isinstance(error, StoreUnavailable) else ""
        command.say_error(f"rebuild: {error}{hint}")
        return 1
    if ended.side is not None:
        command.say_error(
            "rebuild: another rebuild is at it, or an answer of the store was lost. Run the same command again when no "
            "other one runs"
        )
        return 1
    counts = ended.last_counts
    return 0 if counts is not None and not counts.failed else 1
