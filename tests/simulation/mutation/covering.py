"""Which test runs which line, and how long it takes: made once, by the unchanged code.

What a test runs in another process is not seen, so that such a test is asked about no mutant.
"""

import json
import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from devstack.testing import warm as servers
from tests.simulation.mutation.collected import TESTS, in_parallel, run_collected, run_in_fork
from tests.simulation.mutation.forks import Told, forked, warm
from tests.simulation.mutation.mutants import Mutant
from tests.simulation.mutation.reached import KEPT, count, hash_of
from tests.support.paths import ROOT

_LONGEST_SECONDS = 4.0
"""A test that takes longer is not asked."""
_ENDS_WITHIN_SECONDS = 60.0


@dataclass(frozen=True)
class Covering:
    """Which tests run which lines."""

    seconds: Mapping[str, float]
    """Of each test, by its id."""
    lines: Mapping[str, Mapping[int, Sequence[str]]]
    """Of a file, of a line: the tests."""

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that run its line, or its file where it is outside of functions: the shortest first."""
        lines = self.lines.get(mutant.file, {})
        if mutant.warm:
            found = set(lines.get(mutant.line) or lines.get(mutant.statement) or ())
        else:
            found = {test for tests in lines.values() for test in tests}
        return sorted(found, key=lambda test: self.seconds[test])


def the_tests(files: Sequence[str], processes: int) -> Covering:
    """Made anew when one of these files has changed since; of tests that have changed, these alone."""
    kept = KEPT / "covering.json"
    told: Told = json.loads(kept.read_text()) if kept.exists() else {"hashes": {}, "tests": []}
    now = {file: hash_of(file) for file in [*_product(), *_test_files()]}
    known = told["hashes"]
    if any(known.get(file) != now[file] for file in files):
        known = {}
    new = [file for file in _test_files() if known.get(file) != now[file]]
    if new:
        print(f"which test of {len(new)} file(s) runs which line?", flush=True)
        old = [each for each in told["tests"] if _file_of(each) in now and _file_of(each) not in new]
        told = {"hashes": now, "tests": [*old, *_counted(new, processes)]}
        kept.write_text(json.dumps(told))
    lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    tests = [each for each in told["tests"] if each["passed"] and each["seconds"] <= _LONGEST_SECONDS]
    for each in tests:
        for file, numbers in each["lines"].items():
            for number in numbers:
                lines[file][number].append(each["test"])
    return Covering({each["test"]: each["seconds"] for each in tests}, lines)


def _product() -> list[str]:
    return [
        each.relative_to(ROOT).as_posix()
        for package in ("cosmos_changefeed", "cosmos_outbox")
        for each in sorted((ROOT / package).rglob("*.py"))
        if "testing" not in each.parts
    ]


def _test_files() -> list[str]:
    return [
        each.relative_to(ROOT).as_posix()
        for folder in TESTS
        for each in sorted((ROOT / folder).rglob("test_*.py"))
    ]


def _file_of(test: Told) -> str:
    return str(test["test"]).partition("::")[0]


def _counted(files: Sequence[str], processes: int) -> Iterator[Told]:
    """Each test in a fork of its own, as where mutants are: what one has made once, another makes again."""
    folder = KEPT / "covering"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def work(_: Callable[[Told], None]) -> None:
        counts = count(_product())

        def run_all(session: pytest.Session) -> None:
            warm()
            servers.begin()
            in_parallel(session.items, lambda items: run_each(session, items), processes)

        def run_each(session: pytest.Session, items: Iterator[pytest.Item]) -> None:
            with (folder / f"{os.getpid()}.jsonl").open("w") as out:
                for item in items:
                    told, _ = forked(lambda tell, item=item: tell(_ran(session, item, counts, tell)))  # type: ignore[misc]
                    print(json.dumps(told[-1]), file=out, flush=True)

        code = run_collected(run_all, files)
        if code not in {0, pytest.ExitCode.NO_TESTS_COLLECTED}:
            raise SystemExit(code)

    _, code = forked(work)
    if code:
        raise SystemExit("the tests of the unchanged code cannot be run")
    for each in sorted(folder.iterdir()):
        yield from map(json.loads, each.read_text().splitlines())
    shutil.rmtree(folder)


def _ran(
    session: pytest.Session,
    item: pytest.Item,
    counts: Mapping[str, Counter[int]],
    tell: Callable[[Told], None],
) -> Told:
    told: Told = {"test": item.nodeid, "passed": False, "seconds": 0.0, "lines": {}}
    tell({**told, "within": _ENDS_WITHIN_SECONDS})
    for each in counts.values():
        each.clear()
    failures: list[str] = []
    began = time.monotonic()
    run_in_fork(session, [item], lambda _: None, failures.append)
    lines = {file: sorted(lines) for file, lines in counts.items() if lines}
    return told | {"passed": not failures, "seconds": round(time.monotonic() - began, 4), "lines": lines}
