"""Checks a deployment again and again while it drains, after the last fault.

A run ends as soon as nothing is missing and all is quiet. Anything still missing after the last wait is lost. If the
only violations left are those that the daily walk over a read model finds, the operator requests it.
"""

import asyncio
from collections.abc import Awaitable, Callable

from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.operator import PASSING, list_set_aside, reasons
from outbox_simulation.engine.processes import Ground, SimulatedProcess
from outbox_simulation.engine.system_under_test import SimulatedService
from outbox_simulation.engine.watching import Watcher
from outbox_simulation.engine.webhook_double import Posts
from outbox_simulation.invariants.checker import check
from outbox_simulation.invariants.entries import RULE, at_rest
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.violation import Violation

_LOOK_SECONDS, _LONGEST_SECONDS = 5.0, 15.0
"""The pause between two checks; while nothing changes it grows to the second."""

_LITTLE_SECONDS = 0.1

_NOT_QUIET = "not quiet"
_PASSES_SOON = {"not settled", _NOT_QUIET, "not listed"}

Look = Callable[[], Awaitable[list[Violation]]]


async def drain(
    deployment: Deployment,
    look: Look,
    walk: Callable[[], Awaitable[None]],
    quiet_at: Callable[[], float],
    patience_seconds: float,
) -> list[Violation]:
    """Checks until nothing is wrong and all is quiet, or a violation cannot pass, or the time is over.

    ``walk``: over the read models. ``quiet_at``: from when on all is quiet, if nothing more is written.
    """
    loop = deployment.ground.loop
    until = loop.time() + patience_seconds
    pause, before = _LOOK_SECONDS, list[Violation]()
    while True:
        await asyncio.sleep(pause)
        deployment.replace_dead()
        found = await look()
        same = found == before and any(each.rule not in _PASSES_SOON for each in found)
        pause, before = min(1.5 * pause, _LONGEST_SECONDS) if same else _LOOK_SECONDS, found
        if any(not each.may_pass for each in found) or loop.time() > until:
            return found
        if not found and loop.time() > quiet_at():
            return []
        if [each.rule for each in found] == [_NOT_QUIET]:
            pause = max(pause, quiet_at() - loop.time() + _LITTLE_SECONDS)
        if same and all(each.rule == RULE for each in found):
            await walk()


class LastLook:
    """The checks of a service with a language for its events and a read model."""

    def __init__(self, ground: Ground, history: History, of: SimulatedService, watcher: Watcher) -> None:
        self._ground, self._history, self._of, self._watcher = ground, history, of, watcher

    async def __call__(
        self, desk: SimulatedProcess, quiet_at: Callable[[], float], *, settled: bool
    ) -> list[Violation]:
        """Returns what is wrong now."""
        self._watcher.received(self._ground.bus.taken)
        if not settled:
            waits = "something is parked, or set aside, or could not be read"
            final = [each for each in self._judge() if not each.may_pass]
            return [*final, Violation("not settled", waits, may_pass=True)]
        loop = self._ground.loop
        now = loop.time()
        if now <= quiet_at():
            return [Violation(_NOT_QUIET, "something was written just now", may_pass=True)]
        try:
            self._history.found = [*await loop.begin(desk.instance, self._of.listed(desk.wired, now))]
            shown = [*await loop.begin(desk.instance, self._of.shown(desk.wired, now))]
            aside = await loop.begin(desk.instance, list_set_aside(desk.wired))
        except PASSING as error:
            return [Violation("not listed", repr(error), may_pass=True)]
        except Exception as error:  # noqa: BLE001 - a list may raise anything
            return [Violation("unexpected answer", f"a list: {error!r}")]
        found = [*self._judge(), *at_rest(self._history.found, shown, reasons(aside), self._of.language)]
        return [*found, *messages_wait(self._ground)]

    def _judge(self) -> list[Violation]:
        window = self._ground.bus.rules.duplicate_window_seconds
        found = check(self._history, self._of.language, duplicate_window=window)
        bus = self._ground.bus
        return [*found, *self._watcher.wrong, *(bus.wrong if isinstance(bus, Posts) else [])]


def messages_wait(ground: Ground) -> list[Violation]:
    """Returns a violation for the messages that no subscriber has taken yet."""
    return [
        Violation("messages wait", f"{len(queue)} in {name}", may_pass=True)
        for name, queue in ground.bus.queues.items()
        if len(queue)
    ]
