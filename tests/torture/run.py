"""One run: load and faults for a while, then everything is healed, and the checker has the last word."""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import ROOT
from tests.torture.checker import Violation, check
from tests.torture.clients import Client, Directory
from tests.torture.history import History
from tests.torture.journal import Found, Journal, Reader
from tests.torture.listing import whole_list
from tests.torture.nemesis import Nemesis
from tests.torture.operator import Operator
from tests.torture.plan import PROFILES, plan
from tests.torture.stack import Stack, running

CLIENTS = 6
PATIENCE_SECONDS = 150.0
"""More than the relay's longest pause between two attempts (a minute) and the life of a lease together."""
QUIET_SECONDS = 3.0
"""So long nothing may arrive any more before a run counts as over: a late duplicate is one too."""

_LAST_ANSWERS_SECONDS = 60.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Options:
    """What a run is made of. ``patience``: how long after the end the service may take to deliver everything."""

    folder: Path
    seconds: float
    seed: int
    app: Path = ROOT
    profile: str = "everything"
    patience: float = PATIENCE_SECONDS


@dataclass(frozen=True)
class Report:
    """What came out of a run; times in seconds of the monotonic clock."""

    options: Options
    history: History
    violations: list[Violation]
    started: float
    healed: float
    ended: float


async def run(options: Options) -> Report:
    """Raises AssertionError when a process does not come up: that is no verdict."""
    async with AsyncExitStack() as ends:
        stack = await ends.enter_async_context(running(options.folder, options.app, seed=options.seed))
        journal = Journal(stack.clients_log)
        ends.callback(journal.close)
        started = time.monotonic()
        operator = Operator(stack.url, journal)
        await _load_and_faults(options, stack, operator)
        healed = time.monotonic()
        judge = _Judge(stack, operator)
        violations = await judge.wait(options.patience)
        return Report(options, judge.history, violations, started, healed, time.monotonic())


async def _load_and_faults(options: Options, stack: Stack, operator: Operator) -> None:
    directory, stopping = Directory(), asyncio.Event()
    pauses = PROFILES[options.profile].pauses

    def client(name: str) -> Client:
        chance = random.Random(f"{name} {options.seed}")
        return Client(name, stack.url, operator.journal, chance, directory, stopping, pauses)

    nemesis = Nemesis(stack, operator, client("victim"), random.Random(f"nemesis {options.seed}"))
    async with asyncio.timeout(options.seconds + _LAST_ANSWERS_SECONDS), asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(client(f"c{number}").run())
        strikes = plan(options.profile, options.seed, options.seconds)
        await asyncio.gather(nemesis.run(strikes), asyncio.sleep(options.seconds))
        await nemesis.heal()
        stopping.set()
    last = client("last")
    for contact in sorted(directory.etags):
        await last.patch(contact)  # after it, what was lost before is a gap, and no longer only late


@dataclass
class _Judge:
    """Reads the journals on, asks for the final state, and lets the checker look, again and again."""

    stack: Stack
    operator: Operator
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self._readers = [Reader(self.stack.clients_log), Reader(self.stack.subscriber_log)]

    async def wait(self, patience: float) -> list[Violation]:
        """The violations, those that cannot pass first: none as soon as all is well and quiet."""
        deadline = time.monotonic() + patience
        while True:
            violations, complete = await self._look()
            hopeless = any(not violation.may_pass for violation in violations)
            well = complete and not violations and self._is_quiet()
            if hopeless or well or time.monotonic() > deadline:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for contact in self.history.found:
            self.operator.journal.write(Found(body=contact))
        if not self.history.deliveries:
            violations.append(Violation("nothing happened", "no event arrived: there was nothing to judge"))
        return sorted(violations, key=lambda violation: violation.may_pass)

    async def _look(self) -> tuple[list[Violation], bool]:
        """What is wrong now, and whether everything could be looked at."""
        for reader in self._readers:
            self.history.add(reader.new())
        settled = await self.operator.settle()
        contacts = await whole_list(f"{self.stack.url}/contacts")
        self.history.still_parked, self.history.found = self.operator.parked, contacts or []
        return check(self.history), settled and contacts is not None

    def _is_quiet(self) -> bool:
        newest = max(
            (delivery.at for each in self.history.deliveries.values() for delivery in each), default=0.0
        )
        return time.monotonic() - newest > QUIET_SECONDS
