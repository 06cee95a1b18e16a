"""Tests run in processes that are forked from the one that has imported and collected them all, and only once.

Each takes the next file of tests until none is left, since the tests of a file share their servers, and all share what
was imported and the process that forks the servers. As many processes as there are cores begin with the files that
compute; all others have those that wait, and no other: so no core has nothing to do, nor more than it does well.

A process that ends before its tests have is reported as the failure of each of them. Where Python cannot fork,
``--processes 1`` is all there is.
"""

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import struct
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis.strategies import text

from devstack.testing import warm

WAITING = pytest.StashKey[set[Path]]()
"""Of the configuration: the files whose tests wait, most of their time."""

_PLACE = struct.Struct("I")
_ENDS_WITHIN_SECONDS = 30.0

File = Sequence[pytest.Item]


@dataclass
class _Process:
    """One that runs tests, as the first one sees it."""

    process: ForkProcess
    reports: Connection
    file: File = ()
    """That it works on."""
    done: set[str] = field(default_factory=set)
    """The tests of this file that have ended, by their ids."""
    ended: bool = False
    """Whether it has said that nothing was left."""


class _Reporter:
    """Reports to the first process all that it would have seen if the tests ran there."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self._config, self._to = config, to

    def pass_on(self, what: str, **reports: object) -> None:
        self._to.send((what, reports))

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.pass_on("pytest_runtest_logstart", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.pass_on("pytest_runtest_logreport", report=data)

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.pass_on("pytest_runtest_logfinish", nodeid=nodeid, location=location)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        self.pass_on(
            "warned",
            text=text,
            at=(warning_message.filename, warning_message.lineno),
            nodeid=nodeid,
            when=when,
        )


class _Quiet:
    """In the place of what prints: of a test that takes too long the stacks are printed all the same."""

    def __init__(self, printing: pytest.TerminalReporter) -> None:
        self._tw = printing._tw  # where pytest looks for it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="how many processes run the tests")


def pytest_configure(config: pytest.Config) -> None:
    """What all processes share imports what the servers need while the tests are collected."""
    if config.option.processes > 1 and not config.option.collectonly and warm.imports_ahead():
        warm.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in so many processes; None: in this one."""
    option = session.config.option
    if option.processes < 2 or option.collectonly or session.testsfailed:
        return None
    files = [list(items) for _, items in itertools.groupby(session.items, key=lambda item: item.path)]
    waiting = session.config.stash.get(WAITING, set())
    kinds = [file[0].path in waiting for file in files]
    computes, waits = (
        queue_of(place for place, kind in enumerate(kinds) if kind is each) for each in (False, True)
    )
    processes: list[_Process] = []
    _draw()
    try:
        for number in range(min(option.processes, len(files))):
            computing = number < (os.cpu_count() or 1)
            processes.append(_fork(session, files, (computes, waits) if computing else (waits,)))
        _hear(session, files, processes)
        for place in places_of((computes, waits)):
            _fail(session, files[place], "every process of tests had ended before")
    finally:
        os.close(computes)
        os.close(waits)
        for each in processes:
            _end(each.process)
    return True


@settings(max_examples=1, database=None)
@given(text())
def _draw(_: str) -> None:
    """Let hypothesis parse all modules for constants, once and not in each process: three seconds in a new checkout."""


def queue_of(places: Iterable[int]) -> int:
    """What is read from this descriptor, no other process reads."""
    take, give = os.pipe()
    os.write(give, b"".join(map(_PLACE.pack, places)))
    os.close(give)
    return take


def _fork(session: pytest.Session, files: Sequence[File], queues: Sequence[int]) -> _Process:
    context = multiprocessing.get_context("fork")
    reports, pass_on = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(session, files, queues, pass_on))
    process.start()
    pass_on.close()
    return _Process(process, reports)


def _hear(session: pytest.Session, files: Sequence[File], processes: Sequence[_Process]) -> None:
    """Pass on each report, until every process has ended."""
    of = {each.reports: each for each in processes}
    while of:
        for reports in wait(list(of)):
            assert isinstance(reports, Connection)
            process = of[reports]
            try:
                what, arguments = reports.recv()
            except (EOFError, pickle.UnpicklingError):
                del of[reports]
                if not process.ended:
                    _report_death(session, process)
            else:
                _pass_on(session, files, process, what, arguments)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)


def _pass_on(
    session: pytest.Session, files: Sequence[File], process: _Process, what: str, reports: dict[str, Any]
) -> None:
    hook = session.config.hook
    match what:
        case "begins":
            process.file, process.done = files[reports["place"]], set()
        case "ended":
            process.ended = True
        case "not_torn_down":
            _fail(session, files[reports["place"]][-1:], reports["text"], "teardown")
        case "warned":
            at = reports["at"]
            message = warnings.WarningMessage(UserWarning(reports["text"]), UserWarning, *at)
            hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": message,
                    "when": reports["when"],
                    "nodeid": reports["nodeid"],
                    "location": (*at, ""),
                }
            )
        case "pytest_runtest_logreport":
            report = hook.pytest_report_from_serializable(config=session.config, data=reports["report"])
            hook.pytest_runtest_logreport(report=report)
        case _:
            getattr(hook, what)(**reports)
            if what == "pytest_runtest_logfinish":
                process.done.add(reports["nodeid"])


def _fail(session: pytest.Session, items: File, why: str, when: Literal["call", "teardown"] = "call") -> None:
    for item in items:
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, when)
        session.config.hook.pytest_runtest_logreport(report=report)


def _report_death(session: pytest.Session, dead: _Process) -> None:
    dead.process.join()
    code = dead.process.exitcode or 0
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    if left := [item for item in dead.file if item.nodeid not in dead.done]:
        _fail(session, left, f"its process ended {how} before the test did")
    else:
        _fail(session, dead.file[-1:] or session.items[:1], f"its process ended {how} after it", "teardown")


def _end(process: ForkProcess) -> None:
    """When it was interrupted, it may have servers to end."""
    process.join(0)
    if process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGINT)
        process.join(_ENDS_WITHIN_SECONDS)
        process.kill()
        process.join()


def places_of(queues: Sequence[int]) -> Iterator[int]:
    """Those of the files that nobody has taken yet."""
    for queue in queues:
        while place := os.read(queue, _PLACE.size):
            yield _PLACE.unpack(place)[0]


def _work(session: pytest.Session, files: Sequence[File], queues: Sequence[int], to: Connection) -> None:
    """In a process of its own: run file after file."""
    # Where all was started in the background it is ignored, and nothing would be torn down at an interruption.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reporter = _Reporter(session.config, to)
    take_over(session.config, reporter)
    place = 0
    with contextlib.suppress(KeyboardInterrupt):
        try:
            for place in places_of(queues):
                reporter.pass_on("begins", place=place)
                # As if the session came after the last: what all tests share is kept, whatever this process runs then.
                for item, following in itertools.pairwise([*files[place], session]):
                    session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            try:
                session._setupstate.teardown_exact(None)  # as the runner does after the last test
            except Exception:  # noqa: BLE001 - whatever a fixture raises at its end
                reporter.pass_on("not_torn_down", place=place, text=traceback.format_exc())
        reporter.pass_on("ended")


def take_over(config: pytest.Config, reporter: object) -> None:
    """What a test prints goes to a file of this process, and nothing of the tests is printed here."""
    plugins = config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    printing = plugins.unregister(name="terminalreporter")
    if isinstance(printing, pytest.TerminalReporter):
        plugins.register(_Quiet(printing), "terminalreporter")
    plugins.register(reporter)
