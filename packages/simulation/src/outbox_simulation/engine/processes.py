"""Runs a service's processes, each one an instance: the API, the workers of the relay and of the subscribers.

All of it is the deployed code. A process that crashes or is deployed begins again without any memory.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from uuid import UUID

from cosmos_outbox.composition.transports import Clients
from cosmos_outbox.cosmos.store.client import CosmosClient, cosmos_client
from cosmos_outbox.kernel import clock
from cosmos_outbox.service import Service, Wired
from outbox_simulation.engine.fault_injection import FaultyTransport
from outbox_simulation.engine.instance import SimulatedInstance, current
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.store import SimulatedStore
from outbox_simulation.engine.trace import RunTrace
from outbox_simulation.engine.transports import clients_of
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.records import Ended

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of day when a run begins."""

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
"""The well-known key of the emulator."""

_DEPLOYED_WITHIN_SECONDS = 60.0


@dataclass(frozen=True)
class Version:
    """The service and settings with which a process is deployed."""

    service: Service
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Ground:
    """The infrastructure that all processes share."""

    loop: Loop
    trace: RunTrace
    history: History
    store: SimulatedStore
    bus: FaultyTransport
    service: Service
    """The service as it is deployed in the end."""
    version: Version
    """The version with which processes begin."""
    ports: "count[int]" = field(default_factory=lambda: count(10_000))

    def sources(self, chance: random.Random, skew: Callable[[], float], name: str) -> clock.Sources:
        """Returns one process's clock, ids and randomness. ``skew``: the seconds by which its clock is ahead."""
        loop = self.loop  # its clock is the monotonic one of every process
        return clock.Sources(
            now=lambda: EPOCH + timedelta(seconds=loop.time() + skew()),
            monotonic=loop.time,
            new_id=lambda: UUID(int=chance.getrandbits(128), version=4),
            random=chance,
            machine=lambda: name,
            secret=chance.randbytes,
        )

    def clients(self) -> Clients:
        """Returns one process's clients: its own session, publisher and receivers."""

        def cosmos(connection: object, credential: object) -> CosmosClient:
            return cosmos_client(connection, credential, session=self.store.session())  # type: ignore[arg-type]  # as given

        return replace(clients_of(self.bus), cosmos=cosmos)

    def environment(self, version: Version) -> dict[str, str]:
        """Returns one process's settings. The SDK shares state between clients of one address: each has its own.

        The hosts are the same, as the names of leases begin with the host; the ports are not.
        """
        connection = f"AccountEndpoint=https://cosmos.invalid:{next(self.ports)}/;AccountKey={KEY};"
        return {"COSMOS": connection, **version.settings}


Work = Callable[[Wired, asyncio.Event], Awaitable[None]]
"""The work of a process until a stop is requested."""


class SimulatedProcess:
    """One place in a deployment: at any time one instance, or none that lives."""

    def __init__(self, ground: Ground, name: str, work: Work, chance: random.Random) -> None:
        self.name = name
        self.skew = 0.0
        self.version = ground.version
        """The version that begins here from now on."""
        self.halted = False
        """Whether nothing may begin here."""
        self._ground = ground
        self._work = work
        self._chance = chance
        self._begun = 0
        self.begin()

    @property
    def lives(self) -> bool:
        """Whether it takes requests."""
        return self.instance.alive and not self._stop.is_set()

    def begin(self) -> None:
        """Begins as a new process, unless it is halted."""
        if self.halted:
            return
        self._begun += 1
        name = f"{self.name}.{self._begun}"
        ground = self._ground
        context = ground.loop.outside()
        chance = random.Random(f"{name}:{self._chance.random()}")  # noqa: S311 - no secret
        context.run(clock.use, ground.sources(chance, lambda: self.skew, name))
        self.instance = SimulatedInstance(name, context)
        self._stop = asyncio.Event()
        service, environment = self.version.service, ground.environment(self.version)
        self.wired = self.instance.within(lambda: service.wire(environment, ground.clients()))
        self.instance.context.run(service.here, self.wired)
        ground.trace.note("begins", instance=name)
        self._running = ground.loop.begin(self.instance, self._run(self.wired, self._stop))

    def crash(self) -> None:
        """Ends it as SIGKILL does."""
        self._ground.trace.note("crashes", instance=self.instance.name)
        self._ground.loop.crash(self.instance)
        self._ground.bus.ended(self.instance)

    def pause(self, seconds: float) -> None:
        """Pauses it as SIGSTOP does, for this time."""
        self._ground.trace.note("pauses", detail=f"for {seconds:.1f} s", instance=self.instance.name)
        self._ground.loop.pause(self.instance, seconds)

    async def deploy(self) -> None:
        """Requests a stop, and begins another."""
        stopped = self.instance
        await self.stop()
        if stopped is self.instance:
            self.begin()

    async def stop(self) -> None:
        """Requests a stop, and kills the process after the time for it."""
        self._ground.trace.note("stops", instance=self.instance.name)
        stopped = self.instance
        self._stop.set()
        await asyncio.wait({self._running}, timeout=_DEPLOYED_WITHIN_SECONDS)
        if stopped is self.instance:
            self._ground.loop.crash(stopped)
            self._ground.bus.ended(stopped)

    def hand_over(self) -> None:
        """Begins another at once, which takes new requests; this one ends its current work."""
        self._ground.trace.note("stops", instance=self.instance.name)
        self._stop.set()
        self.begin()

    async def _run(self, wired: Wired, stop: asyncio.Event) -> None:
        loop, name = self._ground.loop, self.instance.name
        try:
            await self._work(wired, stop)
            if stop.is_set():
                return
            why = "it returned"
        except Exception as error:  # noqa: BLE001 - any error ends a process
            why = repr(error)
        self._ground.trace.note("ends", detail=why, instance=name)
        self._ground.history.add([Ended(at=loop.time(), instance=name, why=why)])


async def serve_requests(wired: Wired, stop: asyncio.Event) -> None:
    """Begins requests from outside in its instance, as a server does. After a stop it first ends the current ones."""
    async with wired.resources:
        await stop.wait()
        instance = current.get()
        assert instance is not None, "a process is one"
        # Python decides when finished ones are collected, so a run must not depend on it.
        if in_hand := {each for each in instance.begun if not each.done()} - {asyncio.current_task()}:
            await asyncio.wait(in_hand)


async def relay(wired: Wired, stop: asyncio.Event) -> None:
    """``cosmos-outbox relay``."""
    from cosmos_outbox.worker import relay as worker  # noqa: PLC0415 - slow to import

    await worker.run(wired, stop)


async def subscribe(wired: Wired, stop: asyncio.Event, *, slots: int) -> None:
    """``cosmos-outbox subscribe``."""
    from cosmos_outbox.worker import subscriber as worker  # noqa: PLC0415 - slow to import

    await worker.run(wired, stop, slots=slots)


def subscriber(slots: int) -> Work:
    """``cosmos-outbox subscribe`` with so many slots."""
    return partial(subscribe, slots=slots)
