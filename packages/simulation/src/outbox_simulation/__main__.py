"""``python -m outbox_simulation bookings.simulated:BOOKINGS``: many seeds, on all cores.

Every violation is printed with its seed, and with its shortest story; the exit code is 1 then. ``--seed 4711
--trace -`` prints one run step by step.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from outbox_simulation.engine.plan import KINDS, NOT_OVER, SimulationPlan, drawn_transport
from outbox_simulation.engine.report import SHRINKING_SECONDS
from outbox_simulation.engine.seeds import Seeds, SeedWork, service_named, story, summary
from outbox_simulation.engine.transports import SETTINGS
from outbox_simulation.engine.world import run

INTERRUPTED = 130


def one(name: str, plan: SimulationPlan, *, trace: str | None, shrinking_seconds: float) -> int:
    """Runs one seed and returns the number of violations; its trace goes to a file, or with ``-`` to the output."""
    result = run(plan, service_named(name))
    if trace is not None:
        lines = "\n".join(map(str, result.trace))
        if trace == "-":
            print(lines)
        else:
            Path(trace).write_text(lines + "\n")
    print(f"{result.plan}\n{summary(result)}")
    for each in result.violations:
        print(f"    {each}")
    if result.violations and trace is None:
        if shrinking_seconds:
            print(f"its shortest story is searched, for {shrinking_seconds:g} s at most", flush=True)
        print(f"\n{story(SeedWork(name, plan, result.violations[0].rule, shrinking_seconds))}\n")
    print("a promise was broken" if result.violations else "every promise was kept")
    return len(result.violations)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns the exit code."""
    given = _parse(arguments)
    service_named(given.service)  # fails at once if there is none
    if given.seed is not None:
        plan = _plan(given, given.seed)
        return min(1, one(given.service, plan, trace=given.trace, shrinking_seconds=given.shrink))
    plans = [_plan(given, seed) for seed in range(given.first, given.first + given.seeds)]
    seeds = Seeds(given.service, plans, given.jobs, given.shrink)
    seeds.run()
    return 1 if seeds.bad else INTERRUPTED if seeds.interrupted else 0


def _plan(given: argparse.Namespace, seed: int) -> SimulationPlan:
    over = given.over or drawn_transport(seed, service_named(given.service).over)
    plan = SimulationPlan.drawn(seed, shuffled=not given.fifo, transport=over)
    kept = {name: value for name in ("seconds", "aggregates") if (value := getattr(given, name)) is not None}
    faults = plan.faults if given.faults is None else given.faults - NOT_OVER.get(over, set())
    return replace(plan, **kept, faults=faults)


def _faults(text: str) -> frozenset[str]:
    faults = frozenset(each.strip() for each in text.split(",") if each.strip())
    if unknown := faults - KINDS:
        raise argparse.ArgumentTypeError(
            f"there is no {', '.join(sorted(unknown))}: {', '.join(sorted(KINDS))}"
        )
    return faults


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m outbox_simulation", description=__doc__)
    parser.add_argument("service", help="a SimulatedService, as module:NAME")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", help="where the steps of the one seed go; -: to the output")
    parser.add_argument(
        "--fifo", action="store_true", help="what is ready first runs first, as asyncio has it"
    )
    parser.add_argument("--over", choices=sorted(SETTINGS), help="the transport; else the seed draws it")
    parser.add_argument("--seconds", type=float, help="when clients and faults end, in virtual time")
    parser.add_argument("--aggregates", type=int, help="so many are alive at once, at most")
    parser.add_argument("--faults", type=_faults, help="these kinds alone, with commas between them")
    parser.add_argument(
        "--shrink", type=float, default=SHRINKING_SECONDS, metavar="SECONDS",
        help="how long the shortest story of a violation is searched; 0: it is shown as it is",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
