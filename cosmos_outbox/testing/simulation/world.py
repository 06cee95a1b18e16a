"""A whole deployment in one loop: it works, things befall it, then it gets the time to end what it has begun.

The judges look at the end, and while it drains: a run ends as soon as nothing is missing and all is quiet. What is
still missing when patience is used up is lost.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.kernel import clock
from cosmos_outbox.preflight.containers import Needed, needed
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.testing.judging.checker import check
from cosmos_outbox.testing.judging.entries import at_rest
from cosmos_outbox.testing.judging.history import History
from cosmos_outbox.testing.judging.records import Poisoned, Struck
from cosmos_outbox.testing.judging.violation import Violation
from cosmos_outbox.testing.simulation import sdk_clock
from cosmos_outbox.testing.simulation.amqp_bus import AmqpBus
from cosmos_outbox.testing.simulation.befalls import CALM as CALM_BUS
from cosmos_outbox.testing.simulation.bus import Bus
from cosmos_outbox.testing.simulation.bus_queue import Rules
from cosmos_outbox.testing.simulation.loop import Loop, Stuck
from cosmos_outbox.testing.simulation.operator import PASSING, SimulatedOperator, list_set_aside, reasons
from cosmos_outbox.testing.simulation.plan import SimulationPlan
from cosmos_outbox.testing.simulation.processes import (
    EPOCH,
    KEY,
    Ground,
    SimulatedProcess,
    relay,
    serve_requests,
    subscriber,
)
from cosmos_outbox.testing.simulation.store import CALM as CALM_STORE
from cosmos_outbox.testing.simulation.store import SimulatedStore
from cosmos_outbox.testing.simulation.subject import Others, SimulatedClient, SimulatedService, Subject
from cosmos_outbox.testing.simulation.trace import RunTrace
from cosmos_outbox.testing.simulation.watching import Watcher
from devstack.cosmos.in_memory import CosmosInMemory, in_memory

PATIENCE_SECONDS = 1_800.0
"""So long everything may take, after the last fault, to be as it must be."""

QUIET_SECONDS = 20.0
"""So long nothing may happen any more before a run counts as over: a late duplicate is one too."""

_LOOK_SECONDS = 5.0
_OF_OTHER_VERSIONS = 0.5
"""Of what others write, where the service says what other versions of it do."""
_GIVEN_UP = 0.5
"""Of the refused events, where the plan has ``discards``."""
_MENDED_SECONDS = 60.0
"""After so long a lost lease is there again."""
_HURRY_SECONDS = 0.1, 3.0
"""Between two looks of the second operator."""
_LONGEST_PAUSE_SECONDS = 40.0
"""Longer than a lease and a session's lock live."""


@dataclass(frozen=True)
class SimulatedRun:
    """What came of one."""

    plan: SimulationPlan
    violations: list[Violation]
    trace: RunTrace
    history: History
    steps: int
    requests: int
    seconds: float
    """Of virtual time, to the end of the drain."""


def run(plan: SimulationPlan, of: Subject, world: "MakeWorld | None" = None) -> SimulatedRun:
    """One run of the plan. Raises ReachedOut: the code opened something real."""
    return copy_context().run(_run, plan, of, world or World)


def _run(plan: SimulationPlan, of: Subject, make: "MakeWorld") -> SimulatedRun:
    sdk_clock.install()
    _import_all(of)
    loop = Loop(plan.chance("order") if plan.shuffled else None)
    trace, history = RunTrace(loop.time), History()
    chance = plan.chance("store")
    with (
        _quiet_logging(trace),
        in_memory(
            clock=lambda: EPOCH.timestamp() + loop.time(), chance=chance, partitions=plan.partitions
        ) as account,
    ):
        world = make(plan, of, loop, trace, history, account)
        violations = loop.run(_serve_and_live(world))
        violations += [Violation("unhandled error", told) for told in loop.complaints]
        return SimulatedRun(
            plan, violations, trace, history, loop.steps, world.ground.store.requests, world.ended_at
        )


async def _serve_and_live(world: "World") -> list[Violation]:
    """While there is a broker."""
    bus = world.ground.bus
    with bus.serving() if isinstance(bus, AmqpBus) else nullcontext():
        return await world.live()


@dataclass(frozen=True)
class Size:
    """How many there are of each; ``slots``: sessions that a subscriber holds at once."""

    apis: int = 2
    relays: int = 2
    subscribers: int = 2
    clients: int = 3
    slots: int = 3
    idle_seconds: float = 5.0
    """Of a client at most, before it asks again."""
    operator_seconds: tuple[float, float] = (0.1, 30.0)
    """Between two looks."""
    strike_seconds: tuple[float, ...] = (5.0, 15.0, 40.0)
    """Between two strikes of a kind, on average: one of these, and never more than the last."""


class World:
    """One deployment."""

    size = Size()
    quiet_seconds, patience_seconds = QUIET_SECONDS, PATIENCE_SECONDS

    def __init__(  # noqa: PLR0913, PLR0917 - what a world is made of
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
        self._account = account
        store = SimulatedStore(loop, account, chance=plan.chance("requests"), trace=trace)
        names = {"bus": plan.chance("bus")}
        environment = {
            "COSMOS": f"AccountEndpoint=https://x.invalid/;AccountKey={KEY};",
            "SERVICEBUS": "Endpoint=sb://x",
        }
        self._settings = of.service.settings(environment | plan.settings)
        subscriptions = [self._settings.name(each.subscription) for each in of.service.subscribers]
        self._chance = plan.chance("world")
        rules = Rules(duplicate_window_seconds=plan.duplicate_window_seconds)
        make_bus = partial(AmqpBus, loop, self._settings.servicebus_topic) if plan.full else Bus
        bus = make_bus(*subscriptions, random=names["bus"], rules=rules, epoch=EPOCH, note=self._note)
        self.ground = Ground(loop, trace, history, store, bus, of.service, plan.settings)
        self._operator = SimulatedOperator(
            history,
            trace,
            now=None if "skew" in plan.faults else _wall(loop),
            applies=plan.chance("applies").random() < 0.5,
        )
        self._watcher = Watcher(
            history, feed=self._settings.cosmos_container, entries=frozenset(of.read_models)
        )
        self._stopping = False
        self._etags: dict[str, str | None] = {}

    async def live(self) -> list[Violation]:
        """Work, break, drain; what was wrong in the end."""
        clock.use(self.ground.sources(self.plan.chance("ids"), lambda: 0.0, "world"))
        self.loop.root_is_now()
        store, bus, plan, size = self.ground.store, self.ground.bus, self.plan, self.size
        await self._make()
        store.saw = self._watcher.saw
        self.apis = [self._process(f"api-{n}", serve_requests) for n in range(size.apis)]
        self.relays = [self._process(f"relay-{n}", relay) for n in range(size.relays)]
        self.subscribers = [
            self._process(f"subscriber-{n}", subscriber(size.slots)) for n in range(size.subscribers)
        ]
        self._desk = self._process("operator", serve_requests)
        desks = [self._desk]
        if "operators" in plan.faults:
            desks.append(self._process("operator-2", serve_requests))
        store.faults, bus.befalls = plan.store, plan.bus
        clients = [self._client(n, self._etags) for n in range(size.clients)]
        work = [asyncio.create_task(self._act(each)) for each in clients]
        work += [asyncio.create_task(self._operate(desk)) for desk in desks]
        work += [asyncio.create_task(self._strike(kind)) for kind in sorted(plan.faults) if "." not in kind]
        await asyncio.sleep(plan.seconds)
        self._stopping = True
        await asyncio.wait(work)
        self._calm_down()
        found = await self._drain()
        if not found and "lost lease" in plan.faults:  # a part of the feed comes again, from its beginning
            await self.lose_lease(self._chance)
            await asyncio.sleep(_MENDED_SECONDS)
            found = await self._drain()
        self.trace.end()
        self.ended_at = self.loop.time()
        return found

    def _note(self, what: str, about: str = "", detail: str = "") -> None:
        """What the broker tells. What it refuses for good is parked with good reason."""
        self.trace.note(what, about, detail)
        of = self.of
        one = len(of.service.subscribers) == len(of.read_models) == 1
        if what == "completed" and one and isinstance(of, SimulatedService):
            self._watcher.completed(about, detail, of.language.deleted)
        if what == "bus refuses" and about:
            refused = Poisoned(
                at=self.loop.time(), document=f"refused:{detail}", partition=about, stored=None
            )
            self.history.add([refused])
            if "discards" in self.plan.faults and self._chance.random() < _GIVEN_UP:
                self._operator.broken.add(detail)

    # -- what there is

    @property
    def processes(self) -> list[SimulatedProcess]:
        """All that can crash."""
        return [*self.apis, *self.relays, *self.subscribers]

    def _process(self, name: str, work: Callable[..., Awaitable[None]]) -> SimulatedProcess:
        return SimulatedProcess(self.ground, name, work, self.plan.chance(name))

    def _world_client(self) -> CosmosClient:
        connection = Connection(
            connection_string=f"AccountEndpoint=https://cosmos.invalid:443/;AccountKey={KEY};"
        )
        return cosmos_client(connection, None, session=self.ground.store.session())

    async def _make(self) -> None:
        client = self._world_client()
        database = await client.create_database(self._settings.cosmos_database)
        for need in needed(self._settings, self.of.service):
            key = need.partition_key
            await database.create_container(
                need.name,
                PartitionKey(path=key) if isinstance(key, str) else PartitionKey(path=key, kind="MultiHash"),
                default_ttl=-1 if need.ttl_needed else None,
                indexing_policy=_indexing(need),
            )
        await client.close()

    def _client(self, number: int, etags: dict[str, str | None]) -> SimulatedClient:
        return SimulatedClient(
            f"client-{number}", self.loop, self.trace, self.history, self.plan.chance(f"client-{number}"),
            self._any_api, self.plan.aggregates, etags, self.of.errors,
        )  # fmt: skip

    def _any_api(self) -> SimulatedProcess | None:
        there = [each for each in self.apis if each.lives]
        return self._chance.choice(there) if there else None

    # -- while it works

    async def _act(self, client: SimulatedClient) -> None:
        while not self._stopping:
            await self.of.act(client)
            busy = "floods" in self.plan.faults
            await asyncio.sleep(client.chance.uniform(0.0, 1.0 if busy else self.size.idle_seconds))

    async def _operate(self, desk: SimulatedProcess) -> None:
        while not self._stopping:
            seconds = self.size.operator_seconds if desk is self._desk else _HURRY_SECONDS
            await asyncio.sleep(self._chance.uniform(*seconds))
            if not self._stopping:
                await self._settle(desk)

    async def _settle(self, desk: SimulatedProcess) -> bool:
        work = self.loop.begin(desk.instance, self._operator.settle(desk.wired, self.loop.time()))
        return await work

    async def _strike(self, kind: str) -> None:
        strike = _STRIKES.get(kind)
        if strike is None:
            return
        chance = self.plan.chance(f"strike {kind}")
        means = self.size.strike_seconds
        mean = chance.choice(means)
        while not self._stopping:
            await asyncio.sleep(min(chance.expovariate(1 / mean), means[-1]))
            if not self._stopping:
                await strike(self, chance)
                self.history.add([Struck(at=self.loop.time(), fault=kind, target="", seconds=0.0, done=True)])

    async def crash(self, chance: random.Random) -> None:
        """One process dies, and another takes its place."""
        victim = chance.choice(self.processes)
        if victim.instance.alive:
            victim.crash()
            self.loop.call_later(chance.uniform(0.0, 20.0), _begin_if_dead, victim)

    async def pause(self, chance: random.Random) -> None:
        """One process stands still."""
        victim = chance.choice(self.processes)
        if victim.lives:
            victim.pause(chance.uniform(1.0, _LONGEST_PAUSE_SECONDS))

    async def deploy(self, chance: random.Random) -> None:
        """One process is asked to stop, and another takes its place."""
        victim = chance.choice(self.processes)
        if victim.lives:
            await victim.deploy()

    async def split(self, chance: random.Random) -> None:
        """One physical partition becomes two."""
        account, database = self._account, self._settings.cosmos_database
        parts = account.partitions(database, self._settings.cosmos_container)
        if len(parts) < 6:
            part = chance.choice(parts)
            account.split(database, self._settings.cosmos_container, part)
            self.trace.note("split", self._settings.cosmos_container, str(part))

    async def lose_lease(self, chance: random.Random) -> None:
        """One lease is deleted by hand."""
        client = self._world_client()
        with suppress(AzureError):
            leases = client.get_database_client(self._settings.cosmos_database).get_container_client(
                self._settings.cosmos_lease_container
            )
            found = [
                each["id"] async for each in leases.read_all_items() if "Owner" in each or "owner" in each
            ]
            if found:
                victim = chance.choice(sorted(found))
                await leases.delete_item(victim, partition_key=victim)
                self.trace.note("lost lease", victim)
        await client.close()

    async def store_away(self, chance: random.Random) -> None:
        """Nobody reaches the store."""
        self.ground.store.go_away(chance.uniform(0.5, 30.0))

    async def bus_away(self, chance: random.Random) -> None:
        """Nobody reaches the broker."""
        self.ground.bus.go_away(chance.uniform(0.5, 60.0))

    async def skew(self, chance: random.Random) -> None:
        """A process's clock is set, forward or back."""
        victim = chance.choice(self.processes)
        victim.skew = chance.uniform(-60.0, 60.0)
        self.trace.note("clock set", detail=f"{victim.skew:+.1f} s", instance=victim.instance.name)

    async def write_past_the_service(self, chance: random.Random) -> None:
        """Somebody else writes a document: one that the service knows how to take, a broken event, or none at all."""
        of = self.of.others if isinstance(self.of, SimulatedService) else None
        if of is not None and self._etags and chance.random() < _OF_OTHER_VERSIONS:
            others = Others(self.loop.time, chance, self.history, self._feed_of_the_world)
            await of(others, chance.choice(sorted(self._etags)))
            return
        name, aggregates = str(UUID(int=chance.getrandbits(128), version=4)), sorted(self._etags)
        aggregate = chance.choice(aggregates) if aggregates and chance.random() < 0.7 else None
        document: dict[str, Any] = {
            "id": name,
            "partitionKey": aggregate or name,
            "type": "note",
            "text": "hello",
        }
        broken = chance.random() < 0.7
        if broken:
            document |= {
                "type": "domainEvent",
                "data": chance.choice(["nonsense", {"id": name}, [1, 2], None]),
            }
            self._operator.broken.add(name)
            self._poisoned(name, document["partitionKey"], aggregate, stored=None)
        with suppress(AzureError, TimeoutError):
            async with asyncio.timeout(30), self._feed_of_the_world() as feed:
                await feed.create_item(document)
            if broken:
                self._poisoned(name, document["partitionKey"], aggregate, stored=True)
        self.trace.note("others write", document["partitionKey"], f"{name}, {document['type']}")

    @asynccontextmanager
    async def _feed_of_the_world(self) -> AsyncIterator[ContainerProxy]:
        """The container of the feed, as one who writes past the service has it."""
        client = self._world_client()
        try:
            database = client.get_database_client(self._settings.cosmos_database)
            yield database.get_container_client(self._settings.cosmos_container)
        finally:
            await client.close()

    def _poisoned(self, document: str, partition: str, aggregate: str | None, *, stored: bool | None) -> None:
        self.history.add(
            [
                Poisoned(
                    at=self.loop.time(),
                    document=document,
                    partition=partition,
                    stored=stored,
                    aggregate=aggregate,
                )
            ]
        )

    # -- the end

    def _calm_down(self) -> None:
        self.ground.store.faults, self.ground.bus.befalls = (
            CALM_STORE,
            replace(CALM_BUS, longest_way_seconds=0.01),
        )
        self.trace.note("all is calm")
        for each in self.processes:
            if not each.instance.alive:
                each.begin()

    async def _drain(self) -> list[Violation]:
        until = self.loop.time() + self.patience_seconds
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for each in self.processes:
                if not each.instance.alive:
                    each.begin()
            found = await self._look()
            if any(not each.may_pass for each in found) or self.loop.time() > until:
                return found
            if not found and self.loop.time() - self._watcher.newest > self.quiet_seconds:
                return []

    async def _look(self) -> list[Violation]:
        """What is wrong now."""
        assert isinstance(self.of, SimulatedService), "a world of another subject judges by itself"
        settled = await self._settle(self._desk)
        self._watcher.received(self.ground.bus.taken)
        if not settled:
            waits = "something is parked, or set aside, or could not be read"
            final = [each for each in self._judge() if not each.may_pass]
            return [*final, Violation("not settled", waits, may_pass=True)]
        desk, now = self._desk, self.loop.time()
        if now - self._watcher.newest <= self.quiet_seconds:
            return [Violation("not quiet", "something was written just now", may_pass=True)]
        try:
            self.history.found = [*await self.loop.begin(desk.instance, self.of.listed(desk.wired, now))]
            shown = [*await self.loop.begin(desk.instance, self.of.shown(desk.wired, now))]
            aside = await self.loop.begin(desk.instance, list_set_aside(desk.wired))
        except PASSING as error:
            return [Violation("not listed", repr(error), may_pass=True)]
        except Exception as error:  # noqa: BLE001 - whatever a list answers with
            return [Violation("unexpected answer", f"a list: {error!r}")]
        found = [*self._judge(), *at_rest(self.history.found, shown, reasons(aside), self.of.language)]
        found += [
            Violation("messages wait", f"{len(queue)} in {name}", may_pass=True)
            for name, queue in self.ground.bus.queues.items()
            if len(queue)
        ]
        return found

    def _judge(self) -> list[Violation]:
        assert isinstance(self.of, SimulatedService), "as above"
        window = self.ground.bus.rules.duplicate_window_seconds
        found = check(self.history, self.of.language, duplicate_window=window)
        return [*found, *self._watcher.passed_over]


MakeWorld = Callable[[SimulationPlan, Subject, Loop, RunTrace, History, CosmosInMemory], World]


_STRIKES = {
    "crash": World.crash,
    "pause": World.pause,
    "deploy": World.deploy,
    "split": World.split,
    "lost lease": World.lose_lease,
    "store away": World.store_away,
    "bus away": World.bus_away,
    "skew": World.skew,
    "others": World.write_past_the_service,
}


def _begin_if_dead(process: SimulatedProcess) -> None:
    if not process.instance.alive:
        process.begin()


def _wall(loop: Loop) -> Callable[[], datetime]:
    """The time of day of every process, where no clock is set."""
    return lambda: EPOCH + timedelta(seconds=loop.time())


def _indexing(need: Needed) -> Any:
    composite = [[{"path": f"/{part}", "order": "ascending"} for part in index] for index in need.composite]
    return {"includedPaths": [{"path": "/*"}], "compositeIndexes": composite}


class _ToTrace(logging.Handler):
    """What the code logs is part of the story."""

    def __init__(self, trace: RunTrace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.note("says", detail=record.getMessage().splitlines()[0])


class _quiet_logging:  # noqa: N801 - used as a function is
    """Log lines of the code go to the trace, and nowhere else."""

    def __init__(self, trace: RunTrace) -> None:
        self._handler = _ToTrace(trace)

    def __enter__(self) -> None:
        root = logging.root
        self._before = root.handlers[:], root.level
        root.handlers[:] = [self._handler]
        root.setLevel(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        root = logging.root
        root.handlers[:], level = self._before
        root.setLevel(level)


def _import_all(of: Subject) -> None:
    """What is imported late in a process is imported before the run: it opens files, and takes time."""
    from cosmos_outbox.servicebus import dead_letters, publisher, sessions  # noqa: F401, PLC0415
    from cosmos_outbox.worker import relay, subscriber  # noqa: F401, PLC0415


__all__ = ["SimulatedRun", "Stuck", "World", "run"]
