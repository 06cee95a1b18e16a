"""The canary's subscriber under faults: whatever fails, it says that nothing was lost, for nothing was."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cosmos_outbox.cosmos.inbox.heard import CosmosHeard
from cosmos_outbox.inbox.canary import Heard
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.outbox.canary import TYPE, Canary
from cosmos_outbox.outbox.errors import AggregateNotFound, OutboxError
from cosmos_outbox.outbox.unit_of_work import Origin
from cosmos_outbox.testing.judging.violation import Violation
from cosmos_outbox.testing.simulation.plan import SimulationPlan
from cosmos_outbox.testing.simulation.subject import SimulatedClient
from cosmos_outbox.testing.simulation.world import SimulatedRun, World, run
from cosmos_outbox.wiring.service import Service, Wired
from infra.bootstrap import service as contacts

NEVER_SENT = {"bus.refuse_one", "meet.parking", "discards", "operators", "host", "plot.alone"}
"""An event that the broker refuses for good waits for somebody to discard it, and is lost then. The host reads its
functions from its own environment."""
RULE = "lost, says the canary"
SUNG = 8
"""So many times, at least: a minute each."""


@dataclass(frozen=True)
class PlanWithCanary(SimulationPlan):
    """The seed's own, with a canary."""

    @property
    def settings(self) -> dict[str, str]:
        """And it is switched on."""
        return super().settings | {"CANARY": "true"}


async def _nothing(_: SimulatedClient) -> None:
    await asyncio.sleep(5)


@dataclass(frozen=True)
class OnlyTheCanary:
    """Nobody else changes anything."""

    service: Service = contacts
    act: Callable[[SimulatedClient], Awaitable[None]] = _nothing
    read_models: Sequence[str] = ("directory",)
    errors: Mapping[type[Exception], int] = field(default_factory=dict)
    before: Service | None = None


class WorldOfTheCanary(World):
    """It is over when the last song was heard. None is lost but what somebody else took: it may tell of no more."""

    heard: Heard | None = None

    async def _look(self) -> list[Violation]:
        await self._settle(self.desk)
        try:
            sung, self.heard = await self.loop.begin(self.desk.instance, _state(self.desk.wired))
        except (OutboxError, StoreAway) as error:
            return [Violation("not read", repr(error), may_pass=True)]
        if sung < SUNG or self.heard is None or self.heard.last < sung:
            return [Violation("not heard", f"{sung} sung, {self.heard}", may_pass=True)]
        taken = sum(step.what == "stolen" and step.about == TYPE for step in self.trace)
        if len(self.heard.missing) <= taken:
            return []
        return [Violation(RULE, f"{each.sequence} is said to be lost") for each in self.heard.missing]


async def _state(wired: Wired) -> tuple[int, Heard | None]:
    store = CosmosHeard(wired.outbox.container(wired.settings.cosmos_set_aside_container), TYPE)
    try:
        found = await wired.aggregates.read(Canary, TYPE, Origin("look"), newest=True)
    except AggregateNotFound:
        return 0, None
    heard = await store.read()
    return found.aggregate.state.last_sequence, heard[0] if heard else None


def sing(seed: int, alone: frozenset[str] = frozenset()) -> SimulatedRun:
    """The canary of this seed. ``alone``: the kinds of faults that there are; none: those of the seed."""
    drawn = SimulationPlan.drawn(seed)
    faults = alone or drawn.faults - NEVER_SENT
    plan = PlanWithCanary(seed, faults, drawn.aggregates, seconds=SUNG * 60.0)
    return run(plan, OnlyTheCanary(), WorldOfTheCanary)
