"""``python -m tests.simulation.mutation FILE ...``: changes one place, and asks the simulation whether a rule sees it.

The world is imported once and each mutant is a fork of it. A function's code is exchanged in the fork; a change outside
of functions is made before the fork imports the project. A map of which seed runs which line is made once: a mutant is
run in the seeds that run its line, those first that run it most. What no rule sees is given to the module's own tests.
What survives both is told, unless ``harmless.toml`` says why no rule and no test can see it. Exit code 1: something is.
"""

from cosmos_outbox.cli import installed

if __name__ == "__main__":
    installed.require("mutate")

import argparse
import json
import os
import random
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from devstack.testing import warm as servers
from tests.simulation.mutation.collected import in_parallel, run_collected
from tests.simulation.mutation.covering import the_tests
from tests.simulation.mutation.forks import Told, forked, warm
from tests.simulation.mutation.mutants import Mutant, mutants
from tests.simulation.mutation.reached import KEPT, Reached, files_in, hash_of, the_map
from tests.simulation.mutation.trial import (
    CollectedTests,
    ImportedTests,
    Misfit,
    Tests,
    simulated,
)
from tests.support.paths import ROOT

HARMLESS = Path(__file__).with_name("harmless.toml")


class Results:
    """What is known of each mutant, kept between runs while its file stays the same."""

    def __init__(self, again: bool) -> None:
        KEPT.mkdir(exist_ok=True)
        self._file = KEPT / "results.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() and not again else []
        self._known = {each["key"]: each for each in map(json.loads, lines)}
        if again:
            self._file.unlink(missing_ok=True)

    def of(self, mutant: Mutant) -> Told | None:
        """None: it was never tried."""
        return self._known.get(_key(mutant))

    def add(self, mutant: Mutant, told: Told) -> None:
        """Written at once: a run may be broken off."""
        self._known[_key(mutant)] = told
        with self._file.open("a") as out:
            print(json.dumps({"key": _key(mutant), **told}), file=out)

    def read(self) -> None:
        """What a fork has added."""
        self.__init__(again=False)  # type: ignore[misc]  # anew


def _key(mutant: Mutant) -> str:
    return f"{mutant.file} {hash_of(mutant.file)} {mutant.where}: {mutant.what}"


def harmless() -> dict[tuple[str, str, str], str]:
    """Why no rule and no test can see it, by file, function and change."""
    entries = tomllib.loads(HARMLESS.read_text())
    return {
        (file, where, what): why
        for file, of in entries.items()
        for where, changes in of.items()
        for what, why in changes.items()
    }


def judge(
    todo: Iterable[Mutant], reach: Reached, tests: Tests, results: Results, given: argparse.Namespace
) -> None:
    """Try each."""
    for mutant in todo:
        try:
            told = _judged(mutant, reach, tests, given)
        except Misfit:
            told = {"by": "misfit"}
        results.add(mutant, told)
        why = told.get("why") or told.get("tests") or told.get("seeds")
        print(f"{_verdict(told)}: {mutant} ({why})", flush=True)


def _judged(mutant: Mutant, reach: Reached, tests: Tests, given: argparse.Namespace) -> Told:
    if given.tests_first and (test := tests.seen(mutant)):
        return {"by": "tests", "tests": test}
    told = simulated(mutant, reach, given.seconds)
    if told["by"] != "simulation":
        told["tests"] = None if given.tests_first else tests.seen(mutant)
    return told


def _judge_all(todo: Sequence[Mutant], results: Results, given: argparse.Namespace) -> None:
    """In as many processes as there are cores, drawn: one that is broken off has looked at a fair part."""
    files = sorted({each.file for each in todo})
    reach, covering = the_map(files), the_tests(files, given.processes)
    drawn = random.Random(0).sample(todo, len(todo))

    def judge_collected(session: pytest.Session) -> None:
        warm()
        servers.begin()
        in_parallel(
            [each for each in drawn if each.warm],
            lambda todo: judge(todo, reach, CollectedTests(session, covering), results, given),
            given.processes,
        )

    print(f"{len(todo)} mutants", flush=True)
    _, code = forked(lambda _: _exit_unless_ok(run_collected(judge_collected)))
    if code:
        raise SystemExit("the tests could not be collected, or the trial broke off: what is above says why")
    results.read()
    cold = [each for each in drawn if not each.warm or _misfits(results.of(each))]
    in_parallel(
        cold, lambda todo: judge(todo, reach, ImportedTests(covering), results, given), given.processes
    )
    results.read()


def _exit_unless_ok(code: int) -> None:
    if code:
        raise SystemExit(code)


def _misfits(told: Told | None) -> bool:
    return told is not None and told["by"] == "misfit"


def _verdict(told: Told) -> str:
    if told["by"] in {"simulation", "tests", "misfit"}:
        return str(told["by"])
    reached = "not reached" if told["by"] == "not reached" else "survives"
    return f"{reached}, tests" if told["tests"] else reached


VERDICTS = (
    "simulation",
    "survives, tests",
    "not reached, tests",
    "tests",
    "harmless",
    "survives",
    "not reached",
)
"""``tests``: they saw it, and the simulation was not asked."""


def report(chosen: Sequence[Mutant], results: Results) -> list[Mutant]:
    """Print the shares, and what survives."""
    known, left = harmless(), []
    counts: dict[str, Counter[str]] = {}
    for mutant in chosen:
        if (told := results.of(mutant)) is None or _misfits(told):
            continue
        verdict = _verdict(told)
        if verdict in {"survives", "not reached"}:
            if (mutant.file, mutant.where, mutant.what) in known:
                verdict = "harmless"
            else:
                left.append(mutant)
        for name in (mutant.file, "all"):
            counts.setdefault(name, Counter())[verdict] += 1
    for mutant in left:
        told = results.of(mutant) or {}
        print(
            f"LEFT {mutant} | {told.get('by') or 'ran'} {told.get('seeds', '')} differs in {told.get('differs', 0)}"
        )
    print("| file | mutants | " + " | ".join(VERDICTS) + " |", "| --- " * (len(VERDICTS) + 2) + "|", sep="\n")
    for name, each in counts.items():
        print(f"| {name} | {each.total()} | " + " | ".join(f"{each[verdict]}" for verdict in VERDICTS) + " |")
    return left


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser("python -m tests.simulation.mutation", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="or a folder")
    parser.add_argument("--sample", type=int, help="so many of all, the same ones each time; default: all")
    parser.add_argument("--draw", type=int, default=0, help="another choice of as many")
    parser.add_argument("--seconds", type=float, default=10.0, help="of one core, for one that survives")
    parser.add_argument("--again", action="store_true", help="forget what is known from before")
    parser.add_argument("--survivors", action="store_true", help="try those that survived again")
    parser.add_argument("--tests-first", action="store_true", help="simulate only what no test sees: quicker")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", action="store_true", help="try nothing: tell what is known")
    given = parser.parse_args(arguments)
    os.environ["PYTHONHASHSEED"] = "0"
    files = [each for name in given.files for each in files_in(Path(name).resolve())]
    sample = chosen(files, given.sample, given.draw)
    results = Results(given.again)
    todo = [each for each in sample if _is_open(results.of(each), given.survivors)]
    if todo and not given.report:
        _judge_all(todo, results, given)
    return 1 if report(sample, results) else 0


def _is_open(told: Told | None, survivors: bool) -> bool:
    if told is None or _misfits(told):
        return True
    return survivors and told["by"] != "simulation" and not told["tests"]


def chosen(files: Sequence[str], sample: int | None, draw: int) -> list[Mutant]:
    """A sample is one of all: the share that survives in it is the whole's, whatever the sizes of the files."""
    found = [each for file in files for each in mutants(file, (ROOT / file).read_text())]
    if sample is None or sample >= len(found):
        return found
    numbers = random.Random(draw).sample(range(len(found)), sample)
    return [found[each] for each in sorted(numbers)]


if __name__ == "__main__":
    sys.exit(main())
