"""A mutant before its judges: the rules of the simulation, then the module's own tests."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.simulation.mutation.forks import Told, can_be_exchanged, forked, install, run_seed
from tests.simulation.mutation.mutants import Mutant
from tests.simulation.mutation.reached import Reached
from tests.support.paths import ROOT

_MOST_SECONDS = 4.0, 3.0
"""A seed that takes more than these seconds and so many times what it takes unchanged does not end."""

_MORE_PATIENCE = 120.0
"""Twice the drain of the unchanged code, and so many seconds of virtual time: then what is missing is lost."""

_TEST_SECONDS = 40.0
"""Of one core, for one file."""
_SLOW = "tests/unit/test_fuzz.py"
_PYTEST = "-x", "-q", "-W", "ignore", "--timeout", "60", "-m", "not long and not deep"
_OTHER_TESTS = 3
"""Files of tests that are no unit tests: slower."""
_FOLDERS = ("tests/unit", "tests/simulation", "tests/testing", "tests/changefeed", "tests/contract")


def simulated(mutant: Mutant, reach: Reached, seconds: float) -> Told:
    """What the simulation says of a mutant."""
    seeds = reach.seeds(mutant)
    if not seeds:
        return {"by": "not reached"}

    told, code = forked(lambda tell: _run_all(mutant, seeds, reach, seconds, tell))
    if told and told[-1].get("by"):
        return told[-1]
    if told and "does" in told[-1]:
        return {"by": "misfit"}
    if code:
        if mutant.warm and not told:
            raise SystemExit(f"could not be tried: {mutant}")
        why = "a run does not end" if code == -signal.SIGPROF else f"broken off with {code}"
        return {"by": "simulation", "why": why, "seed": told[-1].get("began") if told else None}
    ran = [each for each in told if "ran" in each]
    return {
        "by": None,
        "seeds": [each["ran"] for each in ran],
        "differs": sum(each["differs"] for each in ran),
    }


def _run_all(
    mutant: Mutant, seeds: Sequence[int], reach: Reached, seconds: float, tell: Callable[[Told], None]
) -> None:
    if not install(mutant):
        tell({"does": "not fit"})
        return
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS[0] + _MOST_SECONDS[1] * reach.seconds[seed])
        tell({"began": seed})
        began = time.process_time()
        try:
            result = run_seed(seed, _MORE_PATIENCE + 2 * reach.drains[seed])
        except BaseException as error:  # noqa: BLE001 - ReachedOut and Stuck too
            tell({"by": "simulation", "seed": seed, "why": repr(error)[:200]})
            return
        if result.violations:
            why = "; ".join(sorted({each.rule for each in result.violations}))
            tell({"by": "simulation", "seed": seed, "why": why})
            return
        tell({"ran": seed, "differs": result.trace.digest() != reach.traces[seed]})
        seconds -= time.process_time() - began
        if seconds <= 0:
            return


def files_of_tests(file: str) -> list[str]:
    """The files of tests that import it; else those of whatever imports it."""
    importers: dict[str, set[str]] = {}
    for path in [
        *(ROOT / "cosmos_outbox").rglob("*.py"),
        *(ROOT / "cosmos_changefeed").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
    ]:
        for name in re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), flags=re.MULTILINE):
            importers.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
        for package, names in re.findall(
            r"^\s*from ([\w.]+) import \(?([\w, \n]+)", path.read_text(), flags=re.MULTILINE
        ):
            for name in re.split(r"[,\s]+", names):
                importers.setdefault(f"{package}.{name}", set()).add(path.relative_to(ROOT).as_posix())
    seen, level = {file}, {file}
    while level:
        level = {each for one in level for each in importers.get(one[:-3].replace("/", "."), ())} - seen
        seen |= level
        found = [
            each
            for each in level
            if Path(each).name.startswith("test_") and each.startswith(_FOLDERS) and each != _SLOW
        ]
        if found:
            return _best(file, found)
    return []


def _best(file: str, found: Iterable[str]) -> list[str]:
    """The unit tests, then those few of the others that use most of its names."""
    names = re.findall(
        r"^ *(?:async )?(?:def|class) ([A-Za-z]\w+)", (ROOT / file).read_text(), flags=re.MULTILINE
    )

    def used(test: str) -> int:
        return sum((ROOT / test).read_text().count(name) for name in names)

    unit = sorted(each for each in found if each.startswith("tests/unit"))
    others = sorted({*found} - {*unit}, key=lambda each: (-used(each), each))
    return [*sorted(unit, key=used, reverse=True), *others[:_OTHER_TESTS]]


_imported: dict[str, bool] = {}
"""Files of tests that this process has run with the code as it is: whether they pass. Forks find them imported."""


def _worth_running(files: Sequence[str]) -> Iterator[str]:
    for file in files:
        if file not in _imported and file.startswith("tests/unit") and can_be_exchanged():
            _imported[file] = _unchanged(file)
        if _imported.get(file, True):
            yield file


def _unchanged(file: str) -> bool:
    kept = os.dup(1), os.dup(2)
    sys.stdout.flush()
    _be_quiet()
    try:
        return _passes(file)
    finally:
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)


def _be_quiet() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _passes(file: str) -> bool:
    import pytest  # noqa: PLC0415 - slow to import

    return pytest.main([*_PYTEST, file]) in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


def seen_by_tests(mutant: Mutant, files: Sequence[str]) -> str | None:
    """The first file of tests that fails with the mutant; None: none does."""

    def work(tell: Callable[[Told], None]) -> None:
        _be_quiet()
        install(mutant)
        for file in worth:
            tell({"began": file})
            signal.setitimer(signal.ITIMER_PROF, _TEST_SECONDS)
            if not _passes(file):
                tell({"failed": file})
                return
            tell({"passed": file})

    if not (worth := [*_worth_running(files)]):
        return None
    told, _ = forked(work)
    failed = next((each["failed"] for each in told if "failed" in each), None)
    if failed:
        return str(failed)
    began, passed = ({each[kind] for each in told if kind in each} for kind in ("began", "passed"))
    return f"{next(iter(began - passed))}, which does not end" if began - passed else None
