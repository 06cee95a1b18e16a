"""``python -m cosmos_outbox.testing.simulation bookings.simulated:BOOKINGS``: many seeds, on all cores.

Every violation is printed with its seed; the exit code is 1 then. ``--seed 4711 --trace -`` tells one story.
"""

from cosmos_outbox.cli import installed

if __name__ == "__main__":
    installed.require_extra("simulate", "relay")

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmos_outbox.testing.simulation.plan import SimulationPlan
from cosmos_outbox.testing.simulation.subject import SimulatedService
from cosmos_outbox.testing.simulation.world import SimulatedRun, run

_MOST_TOLD = 5
_SEEDS_OF_A_PROCESS = 50
"""Then another one takes its place: what the SDKs keep does not add up."""


@dataclass(frozen=True)
class SeedOutcome:
    """Of one seed, for another process to read."""

    seed: int
    violations: Sequence[str]
    line: str
    seconds: float


def service_named(name: str) -> SimulatedService:
    """``module:NAME``. Raises SystemExit: there is none."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    found = getattr(importlib.import_module(module), attribute or "SIMULATED", None)
    if not isinstance(found, SimulatedService):
        raise SystemExit(f"{name} is no SimulatedService: name one as module:NAME")
    return found


def told(result: SimulatedRun) -> str:
    """What one run was, in a line."""
    stored, sent = len(result.history.stored), len(result.history.deliveries)
    return (
        f"{stored} event(s) stored, {sent} sent, {result.requests} requests, {result.steps} steps, "
        f"{result.seconds:.0f} s of virtual time, trace {result.trace.digest()}"
    )


def _one(job: tuple[str, int, bool]) -> SeedOutcome:
    name, seed, shuffled = job
    began = time.process_time()
    result = run(SimulationPlan.drawn(seed, shuffled=shuffled), service_named(name))
    violations = [str(each) for each in result.violations]
    return SeedOutcome(seed, violations, f"{result.plan}; {told(result)}", time.process_time() - began)


def many(name: str, seeds: range, *, shuffled: bool, jobs: int) -> int:
    """Run the seeds, tell of progress and of violations; how many seeds had one."""
    bad, cpu, began = 0, 0.0, time.monotonic()
    for done, outcome in enumerate(_outcomes(name, seeds, shuffled=shuffled, jobs=jobs), start=1):
        cpu += outcome.seconds
        if outcome.violations:
            bad += 1
            print(f"\nseed {outcome.seed} BROKE A PROMISE: {outcome.line}")
            for each in outcome.violations[:_MOST_TOLD]:
                print(f"    {each}")
            if len(outcome.violations) > _MOST_TOLD:
                print(f"    and {len(outcome.violations) - _MOST_TOLD} more")
            print(f"    make simulate SEED={outcome.seed} TRACE=-", flush=True)
        if done == len(seeds) or done % max(1, min(20, len(seeds) // 20)) == 0:
            passed = time.monotonic() - began
            print(
                f"{done} of {len(seeds)} seeds, {bad} with a violation, {done / passed:.2f} seeds/s, "
                f"{done / cpu:.2f} seeds/s of one core",
                flush=True,
            )
    return bad


def _outcomes(name: str, seeds: range, *, shuffled: bool, jobs: int) -> Iterator[SeedOutcome]:
    work = [(name, seed, shuffled) for seed in seeds]
    if jobs == 1:
        yield from map(_one, work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=_SEEDS_OF_A_PROCESS) as pool:
        yield from pool.imap_unordered(_one, work)


def one(name: str, seed: int, *, shuffled: bool, trace: str | None) -> int:
    """One seed; its trace goes to a file, or with ``-`` to the output. How many violations there were."""
    result = run(SimulationPlan.drawn(seed, shuffled=shuffled), service_named(name))
    if trace is not None:
        lines = "\n".join(map(str, result.trace))
        if trace == "-":
            print(lines)
        else:
            Path(trace).write_text(lines + "\n")
    print(f"{result.plan}\n{told(result)}")
    for each in result.violations:
        print(f"    {each}")
    print("a promise was broken" if result.violations else "every promise was kept")
    return len(result.violations)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser("python -m cosmos_outbox.testing.simulation", description=__doc__)
    parser.add_argument("service", help="a SimulatedService, as module:NAME")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", help="where the steps of the one seed go; -: to the output")
    parser.add_argument(
        "--fifo", action="store_true", help="what is ready first runs first, as asyncio has it"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return min(1, one(given.service, given.seed, shuffled=not given.fifo, trace=given.trace))
    seeds = range(given.first, given.first + given.seeds)
    return min(1, many(given.service, seeds, shuffled=not given.fifo, jobs=given.jobs))


if __name__ == "__main__":
    sys.exit(main())
