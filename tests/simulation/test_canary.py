"""Whatever fails, the canary says that nothing was lost; and where one event is lost, it says one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from cosmos_outbox.cosmos.inbox.heard import CosmosHeard
from cosmos_outbox.inbox.canary import Heard
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.outbox.canary import TYPE, Canary
from cosmos_outbox.outbox.errors import AggregateNotFound, OutboxError
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Outcome
from cosmos_outbox.outbox.unit_of_work import Origin
from cosmos_outbox.testing.judging.violation import Violation
from cosmos_outbox.testing.simulation.bus_publisher import BusPublisher
from cosmos_outbox.testing.simulation.plan import KINDS, SimulationPlan
from cosmos_outbox.testing.simulation.subject import SimulatedClient
from cosmos_outbox.testing.simulation.world import World, run
from cosmos_outbox.wiring.service import Service, Wired
from infra.bootstrap import service as contacts

NEVER_SENT = {"bus.refuse_one", "meet.parking", "discards", "operators", "host"}
"""An event that the broker refuses for good waits for somebody to discard it, and is lost then. The host reads its
functions from its own environment."""
SUNG = 8
"""So many times, at least: a minute each."""


@dataclass(frozen=True)
class PlanWithCanary(SimulationPlan):
    @property
    def settings(self) -> dict[str, str]:
        return super().settings | {"CANARY": "true"}


async def _nothing(_: SimulatedClient) -> None:
    await asyncio.sleep(5)


@dataclass(frozen=True)
class OnlyTheCanary:
    service: Service = contacts
    act: Callable[[SimulatedClient], Awaitable[None]] = _nothing
    read_models: Sequence[str] = ("directory",)
    errors: Mapping[type[Exception], int] = field(default_factory=dict)
    before: Service | None = None


class WorldOfTheCanary(World):
    """It is over when the last song was heard."""

    heard: Heard | None = None

    async def _look(self) -> list[Violation]:
        await self._settle(self.desk)
        try:
            sung, self.heard = await self.loop.begin(self.desk.instance, _state(self.desk.wired))
        except (OutboxError, StoreAway) as error:
            return [Violation("not read", repr(error), may_pass=True)]
        WorldOfTheCanary.last = self
        if sung < SUNG or self.heard is None or self.heard.last < sung:
            return [Violation("not heard", f"{sung} sung, {self.heard}", may_pass=True)]
        return []

    last: "WorldOfTheCanary | None" = None


async def _state(wired: Wired) -> tuple[int, Heard | None]:
    store = CosmosHeard(wired.outbox.container(wired.settings.cosmos_set_aside_container), TYPE)
    try:
        found = await wired.aggregates.read(Canary, TYPE, Origin("look"), newest=True)
    except AggregateNotFound:
        return 0, None
    heard = await store.read()
    return found.aggregate.state.last_sequence, heard[0] if heard else None


def sing(seed: int) -> Heard:
    drawn = SimulationPlan.drawn(seed)
    plan = PlanWithCanary(seed, drawn.faults - NEVER_SENT, drawn.aggregates, seconds=SUNG * 60.0)
    ran = run(plan, OnlyTheCanary(), WorldOfTheCanary)
    assert ran.violations == []
    world = WorldOfTheCanary.last
    assert world is not None
    assert world.heard is not None
    return world.heard


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 5))])
def test_under_faults_nothing_is_lost(seed: int) -> None:
    heard = sing(seed)
    assert heard.missing == ()
    assert heard.last >= SUNG


def test_the_faults_are_there() -> None:
    assert any(len(SimulationPlan.drawn(seed).faults - NEVER_SENT) > 10 for seed in (1, 2, 3, 4))
    assert NEVER_SENT < KINDS


@pytest.mark.long  # tests/unit/test_canary.py has one that is missing
@pytest.mark.timeout(300)
def test_one_that_is_lost_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker says that it has an event, and has it not."""
    take = BusPublisher.take

    def losing(self: BusPublisher, group: AggregateEvents) -> Outcome:
        kept = [each for each in group.events if (group.aggregate.type, each.sequence) != (TYPE, 5)]
        return take(self, replace(group, events=kept)) if kept else Accepted()

    monkeypatch.setattr(BusPublisher, "take", losing)
    assert [each.sequence for each in sing(1).missing] == [5]
