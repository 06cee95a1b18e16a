"""Some seeds have a further destination, with faults of its own: nothing of one is in the way of the other.

It may be away until all is well with the service's own transport, which so shows that it waits for nobody. Then it is
there, and gets what it is for.
"""

import asyncio
import copy
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from cosmos_outbox.outbox.destination import Destination
from cosmos_outbox.wiring.publishing import SendsTo
from cosmos_outbox.wiring.service import Service
from outbox_simulation.engine.befalls import CALM
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.operator import PASSING
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.processes import EPOCH
from outbox_simulation.engine.subject import SimulatedService, Subject
from outbox_simulation.engine.trace import RunTrace
from outbox_simulation.engine.watching import handed_out
from outbox_simulation.judging.destinations import Wants, destination
from outbox_simulation.judging.history import History
from outbox_simulation.judging.violation import Violation

PARTNER = "partner"
_CHOOSES, _BEGINS, _IS_AWAY = 0.5, 0.3, 0.5
"""Of the seeds with one: those in which it is for some events, begins within the run, is away to its end."""
_LOOK_SECONDS, _PATIENCE_SECONDS = 5.0, 1_800.0


class PartnersBus(Bus):
    """A broker that may be gone for as long as somebody wants."""

    gone = False

    def is_away(self) -> bool:
        """Whether nobody reaches it now."""
        return self.gone or super().is_away()


def declared(plan: SimulationPlan, of: Subject) -> Subject:
    """The same, with another destination where the plan has one, also in the release before."""
    if not plan.partner or not isinstance(of, SimulatedService):
        return of
    chance = plan.chance("partner is for")
    found = Destination(PARTNER, actions=_some(of.service, chance), begin=_begin(plan, chance))
    before = None if of.before is None else _sending(of.before, found)
    return replace(of, service=_sending(of.service, found), before=before)


def _some(service: Service, chance: random.Random) -> frozenset[str] | None:
    if chance.random() >= _CHOOSES:
        return None
    names = sorted({each.__name__ for kind in service.aggregates for each in kind.declared_events()})
    return frozenset(chance.sample(names, chance.randint(1, len(names))))


def _begin(plan: SimulationPlan, chance: random.Random) -> datetime | None:
    return EPOCH + timedelta(seconds=chance.uniform(0, plan.seconds)) if chance.random() < _BEGINS else None


def _sending(service: Service, to: Destination) -> Service:
    """The same declaration, and one more: what the process has of the service is the same."""
    made = copy.copy(service)
    object.__setattr__(made, "destinations", [*service.destinations, SendsTo(to, "servicebus")])
    return made


class SimulatedPartner:
    """The one of a run, if its plan has one."""

    def __init__(self, plan: SimulationPlan, of: Subject, history: History, trace: RunTrace) -> None:
        self._history, self._trace, self._plan = history, trace, plan
        self._chance = plan.chance("partner")
        self._wants = next(
            (
                Wants(each.of.actions, each.of.begin)
                for each in of.service.destinations
                if each.of.name == PARTNER
            ),
            None,
        )
        bus = plan.chance("partner's bus")
        self._bus = PartnersBus(random=bus, befalls=plan.bus, epoch=EPOCH, note=self._note)

    @property
    def others(self) -> Mapping[str, Bus]:
        """By its topic."""
        return {} if self._wants is None else {PARTNER: self._bus}

    def begin(self, deployment: Deployment, over: Callable[[], bool]) -> "Iterable[asyncio.Task[None]]":
        """Its operator, and what befalls it."""
        if self._wants is None:
            return []
        return [asyncio.create_task(self._operate(deployment, over)), asyncio.create_task(self._leave())]

    async def end(self, deployment: Deployment) -> list[Violation]:
        """All is well with the transport: what is wrong when this one had the time to get all that it is for."""
        if self._wants is None:
            return []
        self._bus.gone, self._bus.befalls = False, replace(CALM, longest_way_seconds=0.01)
        self._trace.note("partner: is there, and all is calm")
        until = deployment.ground.loop.time() + _PATIENCE_SECONDS
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            deployment.replace_dead()
            settled = await self._settle(deployment)
            found = self._judge(self._wants)
            if any(not each.may_pass for each in found) or deployment.ground.loop.time() > until:
                return found or [Violation(f"{PARTNER}: not settled", "something is parked")]
            if settled and not found:
                return []

    def _judge(self, wants: Wants) -> list[Violation]:
        taken = [handed_out(each) for each in self._bus.taken]
        return [*destination(PARTNER, self._history.stored, taken, wants)]

    def _note(self, what: str, about: str = "", detail: str = "") -> None:
        self._trace.note(f"{PARTNER}: {what}", about, detail)

    async def _leave(self) -> None:
        if self._chance.random() < _IS_AWAY:
            await asyncio.sleep(self._chance.uniform(0.0, self._plan.seconds))
            self._bus.gone = True
            self._note("is away")

    async def _operate(self, deployment: Deployment, over: Callable[[], bool]) -> None:
        while not over():
            await asyncio.sleep(self._chance.uniform(1.0, 20.0))
            if not deployment.operators_rest:
                await self._settle(deployment)

    async def _settle(self, deployment: Deployment) -> bool:
        """Replay what is parked; whether nothing was."""
        desk = deployment.desks[0]
        return await deployment.ground.loop.begin(desk.instance, self._replay(deployment))

    async def _replay(self, deployment: Deployment) -> bool:
        parking = deployment.desks[0].wired.outbox.towards(PARTNER).parking
        try:
            page = await parking.page(100, None)
            for aggregate in {each.aggregate: None for each in page.items if each.aggregate}:
                result = await parking.replay(aggregate)
                self._note("replays", aggregate.id, f"{result.replayed}, done: {result.done}")
        except PASSING as error:
            self._note("replay fails", detail=repr(error))
            return False
        return not page.items
