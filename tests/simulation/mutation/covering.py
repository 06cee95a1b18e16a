"""Which test runs which line, and how long it takes: made once, by the unchanged code.

What a test runs in another process is not seen, so that such a test is asked about no mutant.
"""

import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import pytest

from tests.simulation.mutation.forks import Told, forked
from tests.simulation.mutation.mutants import Mutant
from tests.simulation.mutation.reached import KEPT, count, hash_of
from tests.support.paths import ROOT

PYTEST = (
    "-q", "-W", "ignore", "-p", "no:cacheprovider", "-m", "not long and not deep", "--simulate-seeds=3",
    "--timeout=60",
)  # fmt: skip
_LONGEST_SECONDS = 4.0
"""A test that takes longer is not asked."""


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
    """Made anew when one of these files has changed since."""
    kept = KEPT / "covering.json"
    told = json.loads(kept.read_text()) if kept.exists() else {"hashes": {}}
    if any(told["hashes"].get(file) != hash_of(file) for file in files):
        print("which test runs which line?", flush=True)
        told = {"hashes": {file: hash_of(file) for file in _product()}, "tests": [*_counted(processes)]}
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


def _counted(processes: int) -> Iterator[Told]:
    folder = KEPT / "covering"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def work(_: Callable[[Told], None]) -> None:
        counts = count(_product())

        class Counting:
            """Tells what each test has run, in whatever process it runs."""

            _out: tuple[int, IO[str]] | None = None
            _passed = True

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
                if self._out is None or self._out[0] != os.getpid():
                    self._out = os.getpid(), (folder / f"{os.getpid()}.jsonl").open("w")
                for each in counts.values():
                    each.clear()
                self._passed, began = True, time.monotonic()
                yield
                told = {
                    "test": item.nodeid,
                    "passed": self._passed,
                    "seconds": round(time.monotonic() - began, 4),
                    "lines": {file: sorted(lines) for file, lines in counts.items() if lines},
                }
                print(json.dumps(told), file=self._out[1], flush=True)

            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                self._passed &= report.passed

        pytest.main(
            [*PYTEST, "-p", "tests.support.processes", f"--processes={processes}"], plugins=[Counting()]
        )

    _, code = forked(work)
    if code:
        raise SystemExit("the tests of the unchanged code cannot be run")
    for each in sorted(folder.iterdir()):
        yield from map(json.loads, each.read_text().splitlines())
    shutil.rmtree(folder)
