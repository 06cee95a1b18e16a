"""``python -m simulated.planted [NAME ...]``: plants each bug in a copy, and simulates the copy.

Seeds run from ``--first`` until a rule sees the bug, or until one core has worked for ``--seconds``. Exit code 0: every
bug that is in reach was found. The checkout is never touched.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from cosmos_outbox.settings.transports import Name
from simulated.planted_bugs import ALONE, ALSO_SEEN_BY, BEHIND_THE_PORT, MEETING, ONLY_WITH, OVER
from tests.support.paths import python_path
from tests.torture.planted import copy_tracked, plant
from tests.torture.planted_bugs import PLANTED, Planted

SECONDS = 120.0
"""Of one core, for one bug."""

_FOUND = re.compile(r"^seed (\d+) after ([\d.]+) s: (.+)$", flags=re.MULTILINE)


@dataclass(frozen=True)
class Hunt:
    """What came of the search for one bug."""

    name: str
    seed: int | None
    """The first in which a promise was broken; None: none was."""
    seconds: float
    """Of one core."""
    rules: tuple[str, ...]
    output: str

    def found(self, bug: Planted) -> bool:
        """Whether a rule saw it that is about it."""
        return not set(self.rules).isdisjoint((*bug.rules, *ALSO_SEEN_BY.get(bug.name, ())))


def in_reach() -> dict[str, Planted]:
    """By name: the simulation has to see each."""
    return {bug.name: bug for bug in (*PLANTED, *MEETING) if bug.name not in BEHIND_THE_PORT}


def hunt(bug: Planted, *, seconds: float = SECONDS, first: int = 1) -> Hunt:
    """Simulate a copy that has the bug. Raises ValueError when the code that it replaces is not there once."""
    with tempfile.TemporaryDirectory(prefix="planted-") as temporary:
        copy = Path(temporary)
        copy_tracked(copy)
        plant(bug, copy)
        return _hunted(bug.name, copy, seconds, first)


def _hunted(name: str, copy: Path, seconds: float, first: int) -> Hunt:
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "simulated.planted",
        "--seeds-for",
        f"{seconds:g}",
        "--first",
        str(first),
        *(["--only-with", ONLY_WITH[name]] if name in ONLY_WITH and name not in ALONE else []),
        *(["--alone", *sorted(ALONE[name])] if name in ALONE else []),
        *(["--over", OVER[name]] if name in OVER else []),
    ]
    done = subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": python_path(copy), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    if found := _FOUND.search(done.stdout):
        return Hunt(name, int(found[1]), float(found[2]), tuple(found[3].split("; ")), output)
    if done.returncode:
        raise RuntimeError(f"the simulation of {name} broke off:\n{output}")
    return Hunt(name, None, time.monotonic() - began, (), output)


def simulate(
    seconds: float,
    first: int,
    *,
    only_with: str | None,
    alone: frozenset[str],
    over: Name,
) -> int:
    """In the copy: run seeds until one breaks a promise."""
    from outbox_simulation.engine.plan import SimulationPlan  # noqa: PLC0415 - those of the copy
    from outbox_simulation.engine.world import run  # noqa: PLC0415
    from simulated.contacts import CONTACTS  # noqa: PLC0415

    began = time.process_time()
    for seed in count(first):
        plan = SimulationPlan.drawn(seed, transport=over)
        if only_with not in {None, *plan.faults}:
            continue
        plan = replace(plan, faults=alone or plan.faults)
        result = run(plan, CONTACTS)
        passed = time.process_time() - began
        if result.violations:
            rules = "; ".join(sorted({each.rule for each in result.violations}))
            print(f"seed {seed} after {passed:.1f} s: {rules}", *result.violations[:5], sep="\n    ")
            return 1
        if passed > seconds:
            print(f"nothing in seeds {first} to {seed}")
            return 0
    raise AssertionError("there is always one more seed")


def row(hunted: Hunt) -> str:
    """A line of a Markdown table."""
    seed = "none" if hunted.seed is None else str(hunted.seed)
    return f"| {hunted.name} | {seed} | {hunted.seconds:.0f} s | {'; '.join(hunted.rules)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt, report, print the table."""
    known = in_reach()
    given = _parse(arguments, known)
    if given.seeds_for is not None:
        return simulate(
            given.seeds_for, given.first,
            only_with=given.only_with, alone=frozenset(given.alone), over=given.over,
        )  # fmt: skip
    print("| bug | seed | CPU | seen by |", "| --- | --- | --- | --- |", sep="\n", flush=True)
    missed = [name for name in given.names or known if not _report(known[name], given.seconds, given.first)]
    if missed:
        print(f"not found: {', '.join(missed)}")
    return 1 if missed else 0


def _report(bug: Planted, seconds: float, first: int) -> bool:
    hunted = hunt(bug, seconds=seconds, first=first)
    print(row(hunted), flush=True)
    if hunted.seed is not None and not hunted.found(bug):
        print(hunted.output, flush=True)
    return hunted.found(bug)


def _parse(arguments: Sequence[str] | None, known: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m simulated.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that are in reach")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one core, for one bug")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds-for", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--only-with", help=argparse.SUPPRESS)
    parser.add_argument("--alone", nargs="*", default=(), help=argparse.SUPPRESS)
    parser.add_argument("--over", default="servicebus", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(known):
        parser.error(f"there is no {', '.join(sorted(unknown))} in reach: take {', '.join(known)}")
    return given


if __name__ == "__main__":
    sys.exit(main())
