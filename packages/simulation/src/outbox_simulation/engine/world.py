"""Runs a whole deployment in one loop: it works, faults are injected, then it gets the time to finish."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from cosmos_outbox.kernel import clock
from devstack.cosmos.in_memory import CosmosInMemory, in_memory
from outbox_simulation.engine import sdk_clock
from outbox_simulation.engine.aggregate_reads import AggregateReads
from outbox_simulation.engine.bus_queue import Rules
from outbox_simulation.engine.correlated_faults import Meetings
from outbox_simulation.engine.deployment import Deployment, Size, import_host
from outbox_simulation.engine.external_writers import PastTheService
from outbox_simulation.engine.fault_bursts import calm_down, change_weather
from outbox_simulation.engine.final_checks import LastLook, drain
from outbox_simulation.engine.ids_of_users import ids_by_luck
from outbox_simulation.engine.lists import ListReader
from outbox_simulation.engine.lists_at_rest import ListsAtRest
from outbox_simulation.engine.log_lines import logged_to
from outbox_simulation.engine.loop import Loop, Stuck
from outbox_simulation.engine.operator import PASSING, SimulatedOperator
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.post_run_checks import Afterwards
from outbox_simulation.engine.process_faults import Strikes
from outbox_simulation.engine.processes import EPOCH, KEY, Ground, SimulatedProcess, Version
from outbox_simulation.engine.redeclared import HttpSource, raising
from outbox_simulation.engine.rollout import Rollout
from outbox_simulation.engine.scripted_scenarios import Plots
from outbox_simulation.engine.store import Saw, SimulatedStore
from outbox_simulation.engine.system_under_test import SimulatedClient, SimulatedService, Subject
from outbox_simulation.engine.trace import RunTrace
from outbox_simulation.engine.transports import import_all, other_side
from outbox_simulation.engine.walking import walk_all
from outbox_simulation.engine.watching import Watcher
from outbox_simulation.engine.webhook_double import Posts
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.past_the_api import REFUSED
from outbox_simulation.invariants.records import Poisoned
from outbox_simulation.invariants.violation import Violation

PATIENCE_SECONDS = 1_800.0
"""The longest time after the last fault until everything must be right."""

QUIET_SECONDS = 20.0
"""The time without any step after which a run counts as over: a late duplicate is a step too."""

_GIVEN_UP = 0.5
"""The share of refused events that are discarded, if the plan has ``discards``."""
_DARES = 0.5
"""The share of looks at broken events that discard, with two operators: what one discards, the other replays."""
_HURRY_SECONDS, _HURRY_IDLE_SECONDS = (0.1, 3.0), (0.1, 10.0)
"""The pauses between two looks of the second operator, with work to do, and without."""
_FLOOD_SECONDS = 10.0
"""The length of a flood, and of the pause before the next."""


@dataclass(frozen=True)
class SimulatedRun:
    """The result of one run."""

    plan: SimulationPlan
    violations: list[Violation]
    trace: RunTrace
    history: History
    steps: int
    requests: int
    seconds: float
    """The seconds of virtual time, to the end of the drain."""


def run(
    plan: SimulationPlan, of: Subject, world: "MakeWorld | None" = None, *, saw: Saw | None = None
) -> SimulatedRun:
    """Runs the plan once. ``saw``: observes the run. Raises ReachedOut: the code opened something real."""
    return copy_context().run(_run, plan, of, world or World, saw)


def _run(plan: SimulationPlan, of: Subject, make: "MakeWorld", saw: Saw | None) -> SimulatedRun:
    if plan.transport == "webhook" and isinstance(of, SimulatedService):
        of = of.posting or of
    sdk_clock.install()
    import_all()
    if plan.hosts or plan.subscriber_hosts:
        import_host()
    loop = Loop(plan.chance("order") if plan.shuffled else None)
    trace, history = RunTrace(loop.time), History()
    chance = plan.chance("store")
    with (
        logged_to(trace),
        ids_by_luck(),
        in_memory(
            clock=lambda: EPOCH.timestamp() + loop.time(), chance=chance, partitions=plan.partitions
        ) as account,
    ):
        world = make(plan, of, loop, trace, history, account)
        world.ground.store.saw += [saw] if saw else []
        violations = loop.run(world.live())
        violations += [Violation("unhandled error", complaint) for complaint in loop.complaints]
        return SimulatedRun(
            plan, violations, trace, history, loop.steps, world.ground.store.requests, world.ended_at
        )


class World:
    """One deployment."""

    size = Size()
    quiet_seconds, patience_seconds = QUIET_SECONDS, PATIENCE_SECONDS

    def __init__(  # noqa: PLR0913, PLR0917 - its collaborators
        self,
        plan: SimulationPlan,
        of: Subject,
        loop: Loop,
        trace: RunTrace,
        history: History,
        account: CosmosInMemory,
    ) -> None:
        self.plan, self.of, self.loop, self.trace, self.history = plan, of, loop, trace, history
        self.ended_at = 0.0
        store = SimulatedStore(loop, account, chance=plan.chance("requests"), trace=trace)
        environment = {"COSMOS": f"AccountEndpoint=https://x.invalid/;AccountKey={KEY};"}
        self._settings = of.service.settings(environment | plan.settings)
        subscriptions = [self._settings.name(each.subscription) for each in of.service.subscribers]
        self._chance = plan.chance("world")
        rules = Rules(duplicate_window_seconds=plan.duplicate_window_seconds)
        bus = other_side(
            self._settings, *subscriptions,
            rules=rules, receiver=getattr(of, "receiver", None),
            random=plan.chance("bus"), epoch=EPOCH, note=self._note,
        )  # fmt: skip
        if isinstance(bus, Posts):
            assert isinstance(of, SimulatedService), "there is a receiver"
            self.of = of = replace(of, shown=bus.shown)
            bus.saw = lambda entry: history.add([entry])
        self._http_source: HttpSource | None = None
        if "proxy" in plan.faults and isinstance(of, SimulatedService) and of.get is not None:
            self._http_source = HttpSource(lambda: self.deployment, of.get, plan.chance("http source"))
            self.of = of = replace(of, service=self._http_source.of(of.service))
        after = plan.settings_after
        # What judges a run calls the functions as they are declared.
        runs = raising(of.service) if "handlers" in plan.faults else of.service
        begins = runs if after is None else of.before or runs
        self.ground = Ground(loop, trace, history, store, bus, of.service, Version(begins, plan.settings))
        self.deployment = Deployment(plan, self.ground, self._settings)
        if isinstance(bus, Posts) and isinstance(of, SimulatedService) and of.read is not None:
            bus.source = AggregateReads(self.deployment, of.read, plan.chance("source"))
        self._rollout = Rollout(plan, self.deployment, Version(runs, after or plan.settings), self._over)
        history.numbers_of_sessions = self._rollout.numbers
        self._operator = SimulatedOperator(
            history,
            trace,
            now=None if "skew" in plan.faults else _wall(loop),
            applies=plan.chance("applies").random() < 0.5,
            dares=lambda: plan.operators == 1 or self._chance.random() < _DARES,
        )
        self._watcher = Watcher(
            history, feed=self._settings.cosmos_container, entries=frozenset(of.read_models)
        )
        self._stopping = False
        self._etags: dict[str, str | None] = {}
        self._focus: set[str] = set()
        past_it = of.others if isinstance(of, SimulatedService) else None
        past = PastTheService(self.deployment, past_it, self._etags, self._operator.broken)
        proxy = {} if self._http_source is None else {"proxy": self._http_source.hide}
        self._strikes = Strikes(self.deployment, account, {"others": past.write, **proxy})
        self._meetings = Meetings(
            plan.faults, plan.chance("meetings"), trace, loop,
            feed=self._settings.cosmos_container, parked=self._settings.cosmos_parked_container,
            strike=self._strikes.strike_one,
        )  # fmt: skip
        self._plots = Plots(
            plan, self.deployment, strikes=self._strikes, meetings=self._meetings, operator=self._operator,
            known=self._etags, focus=self._focus,
        )  # fmt: skip

    async def live(self) -> list[Violation]:
        """Works, breaks, drains; returns what was wrong in the end."""
        clock.use(self.ground.sources(self.plan.chance("ids"), lambda: 0.0, "world"))
        self.loop.root_is_now()
        store, plan, deployment = self.ground.store, self.plan, self.deployment
        await deployment.make_containers()
        store.saw.append(self._watcher.saw)
        deployment.begin(self.size, desks=plan.operators)
        store.meets, self.ground.bus.steals = self._meetings, self._steals
        clients = [self._client(n, self._etags) for n in range(self.size.clients)]
        work = [asyncio.create_task(self._act(each)) for each in clients]
        work += [asyncio.create_task(self._operate(desk)) for desk in deployment.desks]
        work += [
            asyncio.create_task(
                self._strikes.go_on(kind, plan.chance(f"strike {kind}"), self.size.strike_seconds, self._over)
            )
            for kind in sorted(plan.faults & self._strikes.kinds.keys())
        ]
        work += self._plots.begin()
        work += [] if plan.settings_after is None else [asyncio.create_task(self._rollout.go_on())]
        if "lists" in plan.faults:
            work.append(
                asyncio.create_task(ListReader(plan, deployment, self._watcher.wrong).go_on(self._over))
            )
        weather = asyncio.create_task(change_weather(plan, store, self.ground.bus))
        await asyncio.sleep(plan.seconds)
        self._stopping = True
        weather.cancel()
        await asyncio.wait([*work, weather])
        await self._meetings.end()
        self._calm_down()
        found = await self._drain()
        if not found:
            found = await Afterwards(
                plan, self.of, deployment,
                strikes=self._strikes, watcher=self._watcher, clients=clients, drain=self._drain,
            ).go_on()  # fmt: skip
        if not found and "lists" in plan.faults:
            acts = [partial(self.of.act, each) for each in clients]
            found = await ListsAtRest(plan, deployment).look(acts)
        self.trace.end()
        self.ended_at = self.loop.time()
        return found

    def _steals(self, aggregate: str) -> bool:
        if self._http_source is not None and aggregate not in self._watcher.reached():
            return False  # no walk finds an aggregate that has no entry: the API lists none
        return self._plots.steals(aggregate) or self._meetings.steals(aggregate)

    def _note(self, what: str, about: str = "", detail: str = "") -> None:
        """Records a step of the broker. An event that it refuses for good may be parked."""
        self.trace.note(what, about, detail)
        of = self.of
        one = len(of.service.subscribers) == len(of.read_models) == 1
        if what == "completed" and one and isinstance(of, SimulatedService):
            self._watcher.completed(about, detail, of.language.deleted)
        if what in {"stolen", "buried"}:
            self._meetings.stolen(about)
        if what in {"bus refuses", "bus fails"} and about:
            refused = Poisoned(
                at=self.loop.time(), document=f"{REFUSED}{detail}", partition=about, stored=None
            )
            self.history.add([refused])
            judged = isinstance(of, SimulatedService)  # the judge of another subject expects every event
            if judged and what == "bus refuses" and self.plan.discards and self._chance.random() < _GIVEN_UP:
                self._operator.broken.add(detail)

    def _client(self, number: int, etags: dict[str, str | None]) -> SimulatedClient:
        return SimulatedClient(
            f"client-{number}", self.loop, self.trace, self.history, self.plan.chance(f"client-{number}"),
            lambda: self.deployment.any_api(self._chance), self.plan.aggregates, etags, self.of.errors,
            self._focus,
        )  # fmt: skip

    # -- during the run

    def _over(self) -> bool:
        return self._stopping

    async def _act(self, client: SimulatedClient) -> None:
        while not self._stopping:
            await self.of.act(client)
            busy = "floods" in self.plan.faults and self.loop.time() // _FLOOD_SECONDS % 2 == 0
            await asyncio.sleep(client.chance.uniform(0.0, 1.0 if busy else self.size.idle_seconds))

    async def _operate(self, desk: SimulatedProcess) -> None:
        settled = True
        while not self._stopping:
            hurries = _HURRY_IDLE_SECONDS if settled else _HURRY_SECONDS
            seconds = self.size.operator_seconds if desk is self.desk else hurries
            await asyncio.sleep(self._chance.uniform(*seconds))
            if not self._over() and not self.deployment.operators_rest:
                settled = await self._settle(desk)

    @property
    def desk(self) -> SimulatedProcess:
        """The process of the first operator, which always exists."""
        return self.deployment.desks[0]

    async def _settle(self, desk: SimulatedProcess) -> bool:
        work = self.loop.begin(desk.instance, self._operator.settle(desk.wired, self.loop.time()))
        return await work

    # -- the end

    def _calm_down(self) -> None:
        calm_down(self.ground.store, self.ground.bus)
        if self._http_source is not None:
            self._http_source.hidden_until = 0.0
        self.trace.note("all is calm")
        self.deployment.replace_dead()

    async def _drain(self) -> list[Violation]:
        return await drain(self.deployment, self._look, self._walk, self._quiet_at, self.patience_seconds)

    async def _walk(self) -> None:
        with suppress(*PASSING):
            await self.loop.begin(self.desk.instance, walk_all(self.desk.wired.subscriptions))

    def _quiet_at(self) -> float:
        return self._watcher.newest + self.quiet_seconds

    async def _look(self) -> list[Violation]:
        """Returns what is wrong now."""
        assert isinstance(self.of, SimulatedService), "a world of another subject judges by itself"
        look = LastLook(self.ground, self.history, self.of, self._watcher)
        return await look(self.desk, self._quiet_at, settled=await self._settle(self.desk))


MakeWorld = Callable[[SimulationPlan, Subject, Loop, RunTrace, History, CosmosInMemory], World]


def _wall(loop: Loop) -> Callable[[], datetime]:
    """Returns the time of day of every process whose clock is not set."""
    return lambda: EPOCH + timedelta(seconds=loop.time())


__all__ = ["SimulatedRun", "Stuck", "World", "run"]
