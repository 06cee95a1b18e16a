"""Runs scripted fault scenarios step by step that chance would produce in one seed in a hundred.

A plot waits for what it needs (an aggregate, a refusal, a parking), and then strikes at the worst moment. Its times,
targets and durations are drawn. All of its steps could happen to a deployment: refusals, lags, moved leases, a hurried
operator.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent
from outbox_simulation.engine.correlated_faults import Meetings
from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.operator import PASSING, SimulatedOperator
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.process_faults import Strikes
from outbox_simulation.engine.processes import SimulatedProcess
from outbox_simulation.engine.trace import TraceStep

AGAIN, MOVED, TWO_HANDS = "plot.again", "plot.moved", "plot.two hands"
ABSENT, ALONE = "plot.absent", "plot.alone"

_DISCARDING_SECONDS = 75.0
"""The time after which a parked event can be discarded at once: no relay sends from an older reading any more."""
_PATIENCE_SECONDS = 60.0
_LAG_SECONDS = 40.0
_SLOW_SECONDS = 3.0


class _GivenUp(Exception):
    """The condition that the plot waits for does not come."""


class Plots:
    """The plots of one run."""

    def __init__(  # noqa: PLR0913 - their collaborators
        self,
        plan: SimulationPlan,
        deployment: Deployment,
        *,
        strikes: Strikes,
        meetings: Meetings,
        operator: SimulatedOperator,
        known: Mapping[str, object],
        focus: set[str],
    ) -> None:
        """``known``: the existing aggregates; ``focus``: takes those that clients are to change."""
        self._plan, self._deployment, self._ground = plan, deployment, deployment.ground
        self._strikes, self._meetings, self._operator = strikes, meetings, operator
        self._known, self._focus = known, focus
        self._chance = plan.chance("plots")
        self._refused: dict[str, str | None] = {}
        """By aggregate: the event that the broker refuses as long as the plot wants it; None: the next one."""
        self._stolen: dict[str, int] = {}
        """By aggregate: the number of its messages that come through until one is stolen."""
        self._waits: list[tuple[Callable[[TraceStep], bool], asyncio.Future[TraceStep]]] = []
        self._plots: Mapping[str, Callable[[], Awaitable[None]]] = {
            AGAIN: self._comes_again,
            MOVED: self._moves,
            TWO_HANDS: self._two_hands,
            ABSENT: self._absent,
            ALONE: self._alone,
        }

    def begin(self) -> list[asyncio.Task[None]]:
        """Begins the plan's plots."""
        wanted = [self._plots[kind] for kind in sorted(self._plan.faults & self._plots.keys())]
        if not wanted:
            return []
        self._ground.trace.heard = self._heard
        self._ground.bus.refuses = self._refuses
        return [asyncio.create_task(self._play(each)) for each in wanted]

    def steals(self, aggregate: str) -> bool:
        """Returns whether another receiver gets the message of this aggregate that the topic takes now."""
        left = self._stolen.get(aggregate)
        if left is not None:
            self._stolen[aggregate] = left - 1
        return left == 0

    async def _play(self, plot: Callable[[], Awaitable[None]]) -> None:
        try:
            await plot()
        except (_GivenUp, *PASSING) as error:
            self._ground.trace.note("plot fails", detail=repr(error))
        finally:
            self._refused.clear()
            self._focus.clear()

    # -- the plots

    async def _comes_again(self) -> None:
        """Lets a discarded event come again from the feed, when the broker would take it."""
        parked = await self._parks()
        await self._discard(self._desk(0), parked)
        self._refused.clear()
        await asyncio.sleep(self._chance.uniform(0.0, 3.0))
        await self._strikes.lose_lease(self._chance, every=True)

    async def _two_hands(self) -> None:
        """Lets one operator replay while another one discards the blocking event."""
        parked = await self._parks()
        assert parked.aggregate is not None, "it was refused in the order of an aggregate"
        await asyncio.sleep(_DISCARDING_SECONDS)
        self._refused.clear()
        bus, before = self._ground.bus, self._ground.bus.rates
        bus.rates = replace(before, longest_way_seconds=_SLOW_SECONDS)
        one, other = self._desk(0), self._desk(-1)
        replay = self._ground.loop.begin(one.instance, one.wired.operator.parking.replay(parked.aggregate))
        await asyncio.sleep(self._chance.uniform(0.05, 0.5))
        discarding = asyncio.create_task(self._discard(other, parked))
        await asyncio.wait({replay, discarding})
        bus.rates = before
        self._ground.trace.note("plot", parked.aggregate.id, f"replay: {replay.exception()!r}")

    async def _moves(self) -> None:
        """Moves the lease, so that its next owner reads just parked events from a replica that lags."""
        about = await self._someone()
        now = self._ground.loop.time
        self._refused[about], stands = None, now()
        parking = self._deployment.settings.cosmos_parked_container
        step = await self._sees(
            lambda step: (
                (step.what, step.about, " 200 " in step.detail) == ("batch", f"{parking}/docs/", True)
                and step.instance in {each.instance.name for each in self._deployment.relays}
            )
        )
        await asyncio.sleep(self._chance.uniform(1.0, 4.0))
        until = self._chance.uniform(_LAG_SECONDS / 2, _LAG_SECONDS)
        self._meetings.hold(f"/colls/{parking}/docs", stands, until)
        await self._strikes.strike_one(self._chance, step.instance, ways=["deploy", "crash"])
        await asyncio.sleep(until)

    async def _absent(self) -> None:
        """Steals a message of an aggregate that a replica does not know yet."""
        before, now = set(self._known), self._ground.loop.time
        until, new = now() + _PATIENCE_SECONDS, set[str]()
        while not new:
            if now() > until:
                raise _GivenUp("nobody creates an aggregate")
            await asyncio.sleep(0.05)
            new = set(self._known) - before
        about, feed = min(new), self._deployment.settings.cosmos_container
        self._stolen[about] = self._chance.choice([1, 1, 2])
        self._focus.add(about)
        self._meetings.hold(f"/colls/{feed}/docs/{about}/", now() - 15.0, _LAG_SECONDS)
        await asyncio.sleep(_LAG_SECONDS)

    async def _alone(self) -> None:
        """Lets only the Functions host relay, with the broker unavailable for longer than a short retry lasts."""
        await self._someone()
        self._ground.bus.go_away(self._chance.uniform(15.0, 60.0))

    # -- helpers

    def _desk(self, number: int) -> SimulatedProcess:
        return self._deployment.desks[number]

    async def _someone(self) -> str:
        """Returns an aggregate that clients change from now on."""
        await asyncio.sleep(self._chance.uniform(0.0, self._plan.seconds / 3))
        until = self._ground.loop.time() + _PATIENCE_SECONDS
        while not self._known:
            if self._ground.loop.time() > until:
                raise _GivenUp("there is no aggregate")
            await asyncio.sleep(0.5)
        about = self._chance.choice(sorted(self._known))
        self._focus.add(about)
        return about

    async def _parks(self) -> ParkedEvent:
        """Returns an event that the broker refuses from now on, as it is parked."""
        about = await self._someone()
        self._refused[about] = None
        refused = await self._sees(lambda step: step.what == "bus refuses" and step.about == about)
        until = self._ground.loop.time() + _PATIENCE_SECONDS
        while self._ground.loop.time() < until:
            desk = self._desk(0)
            for each in await self._ground.loop.begin(desk.instance, self._operator.list_parked(desk.wired)):
                if each.event_id == refused.detail:
                    return each
            await asyncio.sleep(1.0)
        raise _GivenUp(f"{refused.detail} is not parked")

    async def _discard(self, desk: SimulatedProcess, parked: ParkedEvent) -> None:
        await self._ground.loop.begin(desk.instance, self._operator.discard(desk.wired, parked))

    def _refuses(self, aggregate: str, event: str) -> bool:
        """Whether the broker refuses this one: only the first event of the aggregate that it was asked for."""
        if aggregate not in self._refused:
            return False
        chosen = self._refused[aggregate] = self._refused[aggregate] or event
        return chosen == event

    def _heard(self, step: TraceStep) -> None:
        for wait in [each for each in self._waits if each[0](step)]:
            self._waits.remove(wait)
            if not wait[1].done():
                wait[1].set_result(step)

    async def _sees(self, wanted: Callable[[TraceStep], bool]) -> TraceStep:
        seen: asyncio.Future[TraceStep] = self._ground.loop.create_future()
        self._waits.append((wanted, seen))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await seen
        except TimeoutError:
            raise _GivenUp("what it waits for does not happen") from None
