"""A mutant before its judges: the rules of the simulation, and the tests that run its line."""

import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from tests.simulation.mutation.collected import COULD_NOT, be_quiet, run_collected, run_in_fork
from tests.simulation.mutation.covering import Covering
from tests.simulation.mutation.forks import Told, forked, install, run_seed
from tests.simulation.mutation.mutants import Mutant
from tests.simulation.mutation.reached import Reached
from tests.support.paths import ROOT

_MOST_SECONDS = 4.0, 3.0
"""A seed that takes more than these seconds and so many times what it takes unchanged does not end."""

_MORE_PATIENCE = 120.0
"""Twice the drain of the unchanged code, and so many seconds of virtual time: then what is missing is lost."""

_TESTS_SECONDS = 10.0
"""As many tests as take so long unchanged."""

_TEST_WITHIN = 5.0, 4.0
"""A test that takes more than these seconds and so many times what it takes unchanged does not end."""

_COLD_SECONDS = 20.0
_COLLECTS_WITHIN = 60.0


class Misfit(Exception):
    """The change does not fit a live function: it is to be tried where nothing is imported."""


def simulated(mutant: Mutant, reach: Reached, seconds: float) -> Told:
    """What the simulation says of a mutant. Raises Misfit."""
    seeds = reach.seeds(mutant)
    if not seeds:
        return {"by": "not reached"}

    told, code = forked(lambda tell: _run_all(mutant, seeds, reach, seconds, tell))
    if told and told[-1].get("by"):
        return told[-1]
    if told and "does" in told[-1]:
        raise Misfit
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


class Tests(Protocol):
    """Asks the tests."""

    def seen(self, mutant: Mutant) -> str | None:
        """The first test that fails with it; None: none does. Raises Misfit."""


class CollectedTests:
    """All tests are imported: a mutant is a fork of this process."""

    def __init__(self, session: pytest.Session, covering: Covering) -> None:
        self._session, self._covering = session, covering
        self._items = {item.nodeid: item for item in session.items}
        self._saw = deque[str](maxlen=5)
        """They saw the mutants before, and are asked first."""

    def seen(self, mutant: Mutant) -> str | None:
        tests = [each for each in self._covering.tests(mutant) if each in self._items]
        tests.sort(key=lambda each: each not in self._saw)
        chosen = _within(tests, self._covering, _TESTS_SECONDS)
        if not chosen:
            return None

        def work(tell: Callable[[Told], None]) -> None:
            if install(mutant):
                _run([self._items[each] for each in chosen], self._session, self._covering, tell)
            else:
                tell({"does": "not fit"})

        told, code = forked(work)
        if told and "does" in told[0]:
            raise Misfit
        test = _first_failure(told, code)
        if test is not None:
            self._saw.appendleft(test.removesuffix(_NO_END))
        return test


class ImportedTests:
    """For what is changed before it is imported: this process has imported nothing."""

    def __init__(self, covering: Covering) -> None:
        self._covering = covering

    def seen(self, mutant: Mutant) -> str | None:
        named = re.compile(r"\b" + re.escape(mutant.where.rpartition(".")[2]) + r"\b")
        tests = self._covering.tests(mutant)
        tests.sort(key=lambda each: not named.search(_source_of(each)))
        chosen = _within(tests, self._covering, _COLD_SECONDS)

        def work(tell: Callable[[Told], None]) -> None:
            tell({"began": "the tests' importing", "within": _COLLECTS_WITHIN})
            be_quiet()
            install(mutant)
            code = run_collected(lambda session: _run(session.items, session, self._covering, tell), chosen)
            if code == COULD_NOT:
                tell({"failed": "the tests' importing"})

        return _first_failure(*forked(work)) if chosen else None


def _source_of(test: str) -> str:
    return (ROOT / test.partition("::")[0]).read_text()


def _within(tests: Sequence[str], covering: Covering, seconds: float) -> list[str]:
    chosen: list[str] = []
    for test in tests:
        seconds -= covering.seconds[test]
        if seconds < 0 and chosen:
            break
        chosen.append(test)
    return chosen


_NO_END = ", which does not end"


def _first_failure(told: Sequence[Told], code: int) -> str | None:
    failed = next((each["failed"] for each in told if "failed" in each), None)
    if failed is None and code and told:
        return f"{told[-1]['began']}{_NO_END if code == -signal.SIGKILL else f', broken off with {code}'}"
    return failed


def _run(
    items: Sequence[pytest.Item], session: pytest.Session, covering: Covering, tell: Callable[[Told], None]
) -> None:
    """Up to the first failure."""

    def begins(item: pytest.Item) -> None:
        usual = covering.seconds.get(item.nodeid, 1.0)
        tell({"began": item.nodeid, "within": _TEST_WITHIN[0] + _TEST_WITHIN[1] * usual})

    def failed(test: str) -> None:
        tell({"failed": test})
        os._exit(0)

    run_in_fork(session, items, begins, failed)
