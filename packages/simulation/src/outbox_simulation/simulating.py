"""Runs a whole service under faults by one line of a test, seed after seed, and checks what its declaration promises.

The real code runs: use cases, relay, subscribers and effects, in virtual time, over a Cosmos DB and a Service Bus in
memory. Each seed draws its own mix of faults. A seed is the same run again.
"""

import asyncio
import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cosmos_outbox.service import Service
from outbox_simulation import plugin
from outbox_simulation.derived_invariants.commands import Call, Calls, Commands, Release
from outbox_simulation.derived_invariants.derived import DerivedSubject, subject
from outbox_simulation.derived_invariants.forms import unread as forms_unread
from outbox_simulation.derived_invariants.forms import write
from outbox_simulation.derived_invariants.resting_world import AtRest, RestingWorld
from outbox_simulation.engine.ids_of_users import ids_by_luck
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.report import ViolationReport
from outbox_simulation.engine.world import SimulatedRun, run
from outbox_simulation.publishes import Publishes, violations

_SECONDS, _AGGREGATES = 8.0, 3
_SHRINKING_RUNS = 12
_NOT_HERE = {"others", "discards", "plot.again", "plot.two hands"}
"""Kinds that write past the service or discard events: a service's promises for them are not declared."""


class PromiseBroken(AssertionError):
    """A seed found a violation: the text is the story, and how to run it again."""


def simulate(
    service: Service,
    *commands: Commands[Any] | Call | Publishes,
    seeds: int = 20,
    forms: Path | None = None,
    at_rest: AtRest | None = None,
    before: Release | None = None,
) -> None:
    """Runs the service under simulated faults, seed after seed, while its users make the requests of ``commands``.

    It checks what the service declares: answers match what was stored; each aggregate's sequences have no
    gap; each event is published as it was committed, and in order; a projection of the events gives the read model of
    the state; each effect is asked for; each reaction happens once; what is due happens, and not before; nothing is
    left over. ``seeds``: their number, unless ``--simulate-seeds=1000`` overrides it; ``--simulate-seed=7`` runs that
    one alone. ``forms``: a folder with documents as earlier releases stored them, each of which must be readable;
    ``--simulate-write-forms`` adds the new ones. ``at_rest``: gets all aggregates when nothing is on its way any
    more, and yields what is wrong between them. ``before``: the last release, with which each run begins, and which the
    service replaces process by process. The options are pytest's, by ``-p outbox_simulation.plugin``. Raises
    PromiseBroken; ValueError for invalid arguments.

    An async test calls it in a thread.

    Example::

        commands = Commands(
            Booking,
            create=lambda luck, at: Booking.create(title=luck.choice(["A table", "Two tables"])),
            change=[lambda booking, luck, at: booking.resize(luck.randint(0, 8))],
            refuses=(ValueError,),
        )
        await asyncio.to_thread(simulate, service, commands, seeds=2)
    """
    publishers = [each for each in commands if isinstance(each, Publishes)]
    given = [
        each if isinstance(each, Commands) else Calls(each)
        for each in commands
        if not isinstance(each, Publishes)
    ]
    if not service.publishes:
        if given or not publishers or forms is not None or before is not None:
            raise ValueError(
                f"{service.name} only subscribes: say what others publish, in Publishes(...) alone"
            )
        _subscribing(service, publishers, seeds)
        return
    if publishers or not given:
        raise ValueError(f"say what the users of {service.name} do, in Commands(...) or as calls")
    writes = plugin.options.write_forms
    if forms is not None and not writes and (unread := forms_unread(forms, service)):
        raise PromiseBroken("\n".join(map(str, unread)))
    for seed in _seeds(seeds):
        plan = _plan(seed, before)
        made = subject(service, given, before)
        result = _run(plan, made, at_rest)
        if result.violations:
            raise PromiseBroken(_story(result, lambda: subject(service, given, before), at_rest))
        if forms is not None and writes:
            write(forms, made.forms)


def _subscribing(service: Service, publishers: list[Publishes], seeds: int) -> None:
    for seed in _seeds(seeds):
        with ids_by_luck():
            found = asyncio.run(violations(service, publishers, seed))
        if found:
            raise PromiseBroken(
                "\n".join([f"seed {seed}:", *map(str, found), "", f"run again   {_command(seed)}"])
            )


def _command(seed: int) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    known = "" if plugin.options.loaded else f"-p {plugin.NAME} "
    return f"python -m pytest {known}--simulate-seed={seed} {shlex.quote(test)}"


def _seeds(wanted: int) -> range:
    options = plugin.options
    if options.seed is not None:
        return range(options.seed, options.seed + 1)
    return range(1, 1 + (wanted if options.seeds is None else options.seeds))


def _plan(seed: int, before: Release | None) -> SimulationPlan:
    drawn = SimulationPlan.drawn(seed)
    aggregates = min(drawn.aggregates, _AGGREGATES)
    faults = drawn.faults - _NOT_HERE | ({"rollout"} if before else set())
    return replace(drawn, seconds=_SECONDS, aggregates=aggregates, faults=faults)


def _run(plan: SimulationPlan, of: DerivedSubject, at_rest: AtRest | None) -> SimulatedRun:
    return run(plan, of, partial(RestingWorld, at_rest))


def _story(found: SimulatedRun, made: Callable[[], DerivedSubject], at_rest: AtRest | None) -> str:
    """Returns the first violation, shrunk in a few runs, and the others."""
    plan, first = found.plan, found.violations[0]
    report = ViolationReport(
        run=lambda smaller: _run(smaller, made(), at_rest),
        command=lambda _: _command(plan.seed),
        most_runs=_SHRINKING_RUNS,
    )
    if (story := report(plan, first.rule)) is None:
        return (
            f"seed {plan.seed}: {first}\nand not again: something in the service is not drawn from its seed"
        )
    others = [f"and: {each}" for each in found.violations[1:]]
    return "\n".join([f"seed {plan.seed}: {first}", *others, "", story])
