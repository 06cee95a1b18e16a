"""Runs many seeds on all cores: prints a violation at once, and its shortest story as soon as it is found.

A rule's story is that of the first seed that breaks it. A worker that dies, or a run that breaks off, is a
violation of its seed; Ctrl-C ends the seeds with what was found so far.
"""

import importlib
import multiprocessing
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.report import SHRINKING_SECONDS, ViolationReport
from outbox_simulation.engine.system_under_test import SimulatedService
from outbox_simulation.engine.world import SimulatedRun, run
from outbox_simulation.invariants.violation import Violation

BROKE_OFF = "the run broke off"

_MOST_PRINTED = 5
_SEEDS_OF_A_PROCESS = 50
"""The seeds of one process, before another replaces it: so the SDKs' caches do not add up."""
_PROGRESS_SECONDS = 10.0
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class SeedWork:
    """The work of one worker: a run, or with a ``rule`` the search for the shortest story of its violation."""

    service: str
    plan: SimulationPlan
    rule: str | None = None
    seconds: float = SHRINKING_SECONDS


@dataclass(frozen=True)
class SeedOutcome:
    """The outcome of one run, for another process to read."""

    plan: SimulationPlan
    violations: Sequence[Violation]
    line: str
    seconds: float
    """The seconds of one core."""


def service_named(name: str) -> SimulatedService:
    """Returns the service at ``module:NAME``. Raises SystemExit: there is none."""
    module, _, attribute = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    found = getattr(importlib.import_module(module), attribute or "SIMULATED", None)
    if not isinstance(found, SimulatedService):
        raise SystemExit(f"{name} is no SimulatedService: name one as module:NAME")
    return found


def summary(result: SimulatedRun) -> str:
    """Returns a line about one run."""
    stored, sent = len(result.history.stored), len(result.history.deliveries)
    return (
        f"{stored} event(s) stored, {sent} sent, {result.requests} requests, {result.steps} steps, "
        f"{result.seconds:.0f} s of virtual time, trace {result.trace.digest()}"
    )


def story(work: SeedWork) -> str | None:
    """Returns the shortest story found in time; None: the plan breaks no such rule."""
    service = service_named(work.service)
    report = ViolationReport(
        run=lambda plan: run(plan, service),
        command=lambda plan: command(work.service, plan),
        seconds=work.seconds,
    )
    return report(work.plan, work.rule)


def command(service: str, plan: SimulationPlan) -> str:
    """Returns the command that runs this plan again, even if it was shrunk after its seed drew it."""
    parts = ["python -m outbox_simulation", service, f"--seed {plan.seed}"]
    parts += [f"--over {plan.transport}"]
    parts += [] if plan.shuffled else ["--fifo"]
    parts += [f"--seconds {plan.seconds:g}", f"--aggregates {plan.aggregates}"]
    return " ".join([*parts, f"--faults '{','.join(sorted(plan.faults))}'", "--shrink 0"])


@dataclass
class Seeds:
    """The seeds of one command, which writes to the output."""

    service: str
    plans: Sequence[SimulationPlan]
    jobs: int
    shrinking_seconds: float = SHRINKING_SECONDS
    done: int = 0
    bad: int = 0
    interrupted: bool = False
    _rules: set[str] = field(default_factory=set)
    """The rules whose story is printed, or searched."""
    _cpu: float = 0.0

    def run(self) -> None:
        """Runs all of them, until Ctrl-C."""
        began = said = time.monotonic()
        runs = deque(self.plans)
        stories: deque[SeedWork] = deque()
        workers = [_Worker() for _ in range(min(self.jobs, len(runs)))]
        try:
            while True:
                for idle in [each for each in workers if each.work is None]:
                    if stories or runs:
                        idle.give(stories.popleft() if stories else SeedWork(self.service, runs.popleft()))
                busy = [each for each in workers if each.work is not None]
                if not busy:
                    break
                for ready in _answered(busy, said + _PROGRESS_SECONDS - time.monotonic()):
                    stories.extend(self._took(ready.take()))
                if time.monotonic() - said >= _PROGRESS_SECONDS:
                    said = time.monotonic()
                    searched = sum(each.work is not None and each.work.rule is not None for each in workers)
                    self._progress(said - began, searched + len(stories))
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            for each in workers:
                each.end()
        self._progress(time.monotonic() - began, 0)

    def _took(self, found: "SeedOutcome | str | None") -> list[SeedWork]:
        """Prints an outcome; returns the searches that follow from it."""
        if not isinstance(found, SeedOutcome):
            print(
                f"\n{found or 'a violation did not come again: something in the service is not drawn from its seed'}\n"
            )
            return []
        self.done += 1
        self._cpu += found.seconds
        if not found.violations:
            return []
        self.bad += 1
        print(f"\nseed {found.plan.seed} BROKE A PROMISE: {found.plan}; {found.line}")
        for each in found.violations[:_MOST_PRINTED]:
            print(f"    {each}")
        if len(found.violations) > _MOST_PRINTED:
            print(f"    and {len(found.violations) - _MOST_PRINTED} more")
        first = found.violations[0].rule
        if first == BROKE_OFF or first in self._rules:
            print(f"    {command(self.service, found.plan).removesuffix(' --shrink 0')}", flush=True)
            return []
        self._rules.add(first)
        print(f"    its shortest story is searched, for {self.shrinking_seconds:g} s at most", flush=True)
        return [SeedWork(self.service, found.plan, first, self.shrinking_seconds)]

    def _progress(self, passed: float, stories: int) -> None:
        rate = self.done / passed if passed else 0.0
        parts = [
            f"{self.done} of {len(self.plans)} seeds",
            f"{self.bad} with a violation",
            f"{rate:.2f} seeds/s",
        ]
        if self._cpu:
            parts.append(f"{self.done / self._cpu:.2f} seeds/s of one core")
        if self.interrupted:
            parts.append("interrupted")
        elif rate and self.done < len(self.plans):
            parts.append(f"{_time((len(self.plans) - self.done) / rate)} to go")
        if stories:
            parts.append(f"{stories} story searched" if stories == 1 else f"{stories} stories searched")
        print(", ".join(parts), flush=True)


class _Worker:
    """A process that runs one seed after the other; another one replaces it after some of them."""

    def __init__(self) -> None:
        self.work: SeedWork | None = None
        self._left = 0

    def give(self, work: SeedWork) -> None:
        if not self._left:
            self._begin()
        self._left -= 1
        self.work = work
        self.answers.send(work)

    def take(self) -> "SeedOutcome | str | None":
        """Returns the outcome of its work."""
        assert self.work is not None
        work, self.work = self.work, None
        try:
            answer: SeedOutcome | str | None = self.answers.recv()
        except EOFError:
            self._left = 0
            self._process.join()
            answer = _broken_off(work, f"its process ended with exit code {self._process.exitcode}")
        if not self._left:
            self.end()
        return answer

    def end(self) -> None:
        """Ends it, whatever it does."""
        if hasattr(self, "answers"):
            self._process.terminate()
            self._process.join()
            self.answers.close()
            self._left = 0

    def _begin(self) -> None:
        self.answers, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        resource_tracker.ensure_running()  # its start unblocks Ctrl-C
        ours = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()  # the child ignores Ctrl-C: this process handles it and ends the child
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ours)
        theirs.close()
        self._left = _SEEDS_OF_A_PROCESS


def _answered(busy: Iterable[_Worker], seconds: float) -> list[_Worker]:
    by_connection = {each.answers: each for each in busy}
    return [
        by_connection[each]
        for each in wait([*by_connection], timeout=max(0.0, seconds))
        if isinstance(each, Connection)
    ]


def _serve(connection: "Connection[SeedOutcome | str | None, SeedWork]") -> None:
    while True:
        try:
            work = connection.recv()
        except EOFError:
            return
        connection.send(_carried_out(work))


def _carried_out(work: SeedWork) -> "SeedOutcome | str | None":
    began = time.process_time()
    try:
        if work.rule is not None:
            return story(work)
        result = run(work.plan, service_named(work.service))
    except BaseException:  # noqa: BLE001 - whatever a handler raises ends its run alone, and shows where
        return _broken_off(work, traceback.format_exc())
    return SeedOutcome(work.plan, result.violations, summary(result), time.process_time() - began)


def _broken_off(work: SeedWork, why: str) -> "SeedOutcome | str":
    if work.rule is not None:
        return f"seed {work.plan.seed}: the search of its shortest story broke off: {why}"
    return SeedOutcome(work.plan, [Violation(BROKE_OFF, why)], "", 0.0)


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    )
