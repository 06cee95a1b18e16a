"""Tests are collected once, and then run in forks: what one of them leaves in a process, no other finds there."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.processes import places_of, queue_of, take_over

PYTEST = (
    "-q", "-W", "ignore", "-p", "no:cacheprovider",
    "--hypothesis-profile=mutants", "-m", "not long and not deep", "--simulate-seeds=3", "--timeout=60",
)  # fmt: skip
TESTS = (
    "tests/changefeed", "tests/contract", "tests/docs", "tests/models", "tests/preflight", "tests/simulation",
    "tests/testing", "tests/unit",
)  # fmt: skip
"""The others run the project in processes of its own, most of them."""
COULD_NOT = pytest.ExitCode.INTERRUPTED
"""Not all tests could be collected."""

T = TypeVar("T")


def run_collected(work: Callable[[pytest.Session], None], tests: Sequence[str] = TESTS) -> int:
    """Collect these tests and give them to the work. Pytest's exit code."""
    settings.register_profile(
        "mutants",
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],  # of a busy machine, no mutant's doing
        phases=(Phase.explicit, Phase.generate),  # an example that fails is not made shorter,
        database=None,  # and nothing is kept of it
    )

    class Loop:
        """Instead of pytest's own."""

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            if session.testsfailed:
                raise session.Interrupted("not all tests could be collected")
            session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all forks
            work(session)
            return True

    return int(pytest.main([*PYTEST, *tests], plugins=[Loop()]))


def run_in_fork(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    begins: Callable[[pytest.Item], None],
    failed: Callable[[str], None],
) -> None:
    """Run these tests in this process, which is a fork of the one that has collected them and ends with this."""

    class Teller:
        """Tells of each failure."""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed(report.nodeid)

    take_over(session.config, Teller())
    for item, following in pairwise([*items, None]):
        assert item is not None
        begins(item)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def in_parallel(todo: Sequence[T], work: Callable[[Iterator[T]], None], processes: int) -> None:
    """Each process takes the next one until none is left."""
    queue = queue_of(range(len(todo)))
    fork = multiprocessing.get_context("fork").Process
    children = [
        fork(target=lambda: work(todo[place] for place in places_of([queue]))) for _ in range(processes)
    ]
    for each in children:
        each.start()
    for each in children:
        each.join()
    os.close(queue)


def be_quiet() -> None:
    """What this process prints is thrown away."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
