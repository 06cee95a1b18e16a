"""Deploys another version, process by process in any order, so that both are at work side by side.

The versions differ in their settings, and in the service if the subject has one of the release before. At times a
deployment is rolled back, and repeated. The number of sessions is changed side by side, as it should not be, or as
docs/use/messages.md requires: no relay runs until the subscriptions are empty. Then all other settings may change that
relays have to agree on.
"""

import asyncio
from collections.abc import Callable, Sequence

from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.final_checks import messages_wait
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.processes import Ground, SimulatedProcess, Version

_LATEST, _LONGEST = 0.4, 0.5
"""Shares of a run's time: the latest begin, and the longest duration."""
_TAKEN_BACK = 0.3
_EMPTY_SECONDS = 300.0
"""The longest wait until the subscriptions are empty."""


class Rollout:
    """The one deployment of a run."""

    def __init__(
        self, plan: SimulationPlan, deployment: Deployment, to: Version, over: Callable[[], bool]
    ) -> None:
        """``over``: whether the run ends now."""
        self._deployment, self._to, self._over = deployment, to, over
        self._ground: Ground = deployment.ground
        self._chance = plan.chance("rollout")
        self._seconds = plan.seconds
        numbers = {each.settings.get("SERVICEBUS_SESSIONS") for each in (self._ground.version, to)}
        self.numbers = len(numbers)
        """The number of different session counts that the versions have."""
        self._no_relay_during_it = plan.no_relay_during_it

    async def go_on(self) -> None:
        """Runs the deployment some time into the run, to its end."""
        chance = self._chance
        await self._pause(chance.uniform(0.0, _LATEST * self._seconds))
        if self._no_relay_during_it:
            await self._while_no_relay_runs()
        elif chance.random() < _TAKEN_BACK:
            everybody = self._shuffled()
            await self._replace(everybody[: 1 + chance.randrange(len(everybody))], self._to)
            await self._replace(self._shuffled(), self._ground.version)
        await self._replace(self._shuffled(), self._to)

    async def _replace(self, processes: Sequence[SimulatedProcess], by: Version) -> None:
        wanted = [each for each in processes if each.version is not by]
        mean = self._chance.uniform(0.0, _LONGEST) * self._seconds / max(1, len(wanted))
        for each in wanted:
            each.version = by
            if each in self._deployment.desks:
                each.hand_over()
            elif each.lives:
                await each.deploy()
            await self._pause(self._chance.uniform(0.0, 2 * mean))

    async def _while_no_relay_runs(self) -> None:
        """Replaces every relay while nothing waits; no operator replays in between."""
        deployment, now = self._deployment, self._ground.loop.time
        deployment.operators_rest = True
        for each in deployment.relays:
            each.version, each.halted = self._to, True
            if each.lives:
                await each.stop()
        until = now() + _EMPTY_SECONDS
        while messages_wait(self._ground) and now() < until:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(1.0)
        self._ground.trace.note("sessions change", detail="while nothing waits")
        await self._replace(deployment.desks, self._to)
        for each in deployment.relays:
            each.halted = False
            each.begin()
        deployment.operators_rest = False

    def _shuffled(self) -> list[SimulatedProcess]:
        found = [*self._deployment.processes, *self._deployment.desks]
        self._chance.shuffle(found)
        return found

    async def _pause(self, seconds: float) -> None:
        until = self._ground.loop.time() + seconds
        while not self._over() and (left := until - self._ground.loop.time()) > 0:  # noqa: ASYNC110 - the same
            await asyncio.sleep(min(left, 1.0))
