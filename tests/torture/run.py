"""One run: load and faults for a time, then all faults end, and the checker judges."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.records import Stolen
from tests.support.paths import ROOT
from tests.torture.clients import Client, Directory
from tests.torture.journal import Journal, Reader
from tests.torture.judge import Judge, Verdict
from tests.torture.listing import whole_list
from tests.torture.nemesis import Nemesis
from tests.torture.operator import Operator
from tests.torture.plan import PROFILES, plan
from tests.torture.stack import Stack, running
from tests.torture.watcher import watching

T = TypeVar("T")

CLIENTS = 6
PATIENCE_SECONDS = 150.0
"""More than the relay's longest pause between two attempts (a minute) and the life of a lease together."""

_LAST_ANSWERS_SECONDS = 60.0
_PAUSE_SECONDS = 0.3
_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Options:
    """What a run is made of. ``patience``: how long after the end the service may take to deliver everything."""

    folder: Path
    seconds: float
    seed: int
    app: Path = ROOT
    profile: str = "everything"
    patience: float = PATIENCE_SECONDS
    end_early: bool = False
    """Whether the run ends as soon as something is wrong for good."""


@dataclass(frozen=True)
class Report:
    """What came out of a run; times in seconds of the monotonic clock."""

    options: Options
    history: History
    verdict: Verdict
    started: float
    healed: float | None
    """When nothing was broken any more; None when the run did not come so far."""
    ended: float


class _Run:
    """How far a run has come; what it has written down outlives whatever breaks it off."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._judge: Judge | None = None
        self._started = time.monotonic()
        self._healed: float | None = None

    async def whole(self) -> Verdict:
        async with AsyncExitStack() as ends:
            options, profile = self._options, PROFILES[self._options.profile]
            stack = await ends.enter_async_context(
                running(
                    options.folder,
                    options.app,
                    seed=options.seed,
                    hosts=profile.hosts,
                    workers=profile.workers,
                    page=profile.page,
                    page_of_the_worker=profile.page_of_the_worker or profile.page,
                )
            )
            journal = Journal(stack.clients_log)
            ends.callback(journal.close)
            await ends.enter_async_context(watching(stack, journal))
            operator = Operator(stack.url, journal)
            self._judge = Judge(operator, stack.clients_log, stack.subscriber_log)
            self._started = time.monotonic()
            if await self._broken_for_good(_load_and_faults(options, stack, operator)):
                return self._judge.broken_off("")
            self._healed = time.monotonic()
            return await self._judge.wait(options.patience)

    async def _broken_for_good(self, load_and_faults: Coroutine[Any, Any, None]) -> bool:
        """Whether the run ended early, since something was wrong for good."""
        assert self._judge is not None
        tasks = [asyncio.create_task(load_and_faults)]
        if self._options.end_early:
            tasks.append(asyncio.create_task(self._judge.until_broken_for_good()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        return tasks[0] not in done

    def broken_off(self, why: str) -> Verdict:
        return self._judge.broken_off(why) if self._judge else Verdict(broken_off=why)

    def report(self, verdict: Verdict) -> Report:
        history = self._judge.history if self._judge else History()
        return Report(self._options, history, verdict, self._started, self._healed, time.monotonic())


async def run(options: Options) -> Report:
    """All of it. A run that is broken off has a report too; a mistake of the test's own code is raised."""
    under_way = _Run(options)
    try:
        with _cancelled_by_signals():
            verdict = await under_way.whole()
    except (asyncio.CancelledError, AssertionError, TimeoutError, ExceptionGroup) as error:
        verdict = under_way.broken_off(_reason(error))
    return under_way.report(verdict)


@contextmanager
def _cancelled_by_signals() -> Iterator[None]:
    """Everything is ended in order. SIGINT too, which asyncio.run leaves alone where a shell ignores it (``... &``)."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in _STOPS:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in _STOPS:
            loop.remove_signal_handler(number)


def _reason(error: BaseException) -> str:
    """Why a run was broken off. Raises what is no reason but a mistake in the test."""
    match error:
        case ExceptionGroup():
            return "; ".join(dict.fromkeys(_reason(each) for each in error.exceptions))
        case asyncio.CancelledError():
            return "it was stopped from outside"
        case TimeoutError():
            return f"clients and faults did not come to their end within {_LAST_ANSWERS_SECONDS:g} s"
        case AssertionError():
            return (str(error).splitlines() or ["an assertion failed"])[0]
    raise error


async def _load_and_faults(options: Options, stack: Stack, operator: Operator) -> None:
    directory, stopping = Directory(), asyncio.Event()
    pauses = PROFILES[options.profile].pauses

    def client(name: str) -> Client:
        chance = random.Random(f"{name} {options.seed}")
        return Client(name, stack.urls, operator.journal, chance, directory, stopping, pauses)

    nemesis = Nemesis(stack, operator, client("victim"), random.Random(f"nemesis {options.seed}"))
    async with asyncio.timeout(options.seconds + _LAST_ANSWERS_SECONDS), asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(client(f"c{number}").run())
        strikes = plan(options.profile, options.seed, options.seconds)
        await asyncio.gather(nemesis.run(strikes), asyncio.sleep(options.seconds))
        await nemesis.heal()
        stopping.set()
    last = client("last")
    if not PROFILES[options.profile].ends_quietly:
        for contact in sorted(directory.etags):
            await last.patch(contact)  # after it, what was lost before is a gap, and no longer only late
    await _follow_what_was_lost(stack, last)


async def _follow_what_was_lost(stack: Stack, client: Client) -> None:
    """A thief may have taken the newest message of a contact: only a later event shows it, or a walk within a day."""
    history = History()
    history.add(Reader(stack.clients_log).new())
    lost = {each.aggregate: each.sequence for each in sorted(history.stolen, key=_sequence) if each.lost}
    for contact in await _until(lambda: whole_list(f"{stack.url}/contacts")) if lost else []:
        if contact["sequence"] <= lost.get(contact["id"], 0):
            await _until(partial(_changed, client, contact["id"]))


async def _changed(client: Client, contact: str) -> bool | None:
    return (await client.patch(contact)).outcome == "acknowledged" or None


async def _until(call: Callable[[], Awaitable[T | None]]) -> T:
    """What the call gives as soon as it gives something."""
    while True:
        found = await call()
        if found is not None:
            return found
        await asyncio.sleep(_PAUSE_SECONDS)


def _sequence(stolen: Stolen) -> int:
    return stolen.sequence
