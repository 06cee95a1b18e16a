"""A program of any kind runs a service's relay and subscribers beside its own work: ``async with running(service)``.

They are the workers of ``cosmos-outbox relay`` and ``cosmos-outbox subscriber``, as tasks of this process, with the
same leases, timers and limits. So processes that run them, workers and function apps share the work.

What is wrong with the settings or the deployment is raised before the block begins. A store that is away is not: the
block begins, and the workers wait for the store. A worker that fails while the block runs is told, and begun again,
instead of ending the program: a web server would go on without it and hide the error (uvicorn takes a lifespan that
ended for one that is not supported), and events would wait in silence. The end of the block lets what is in hand end,
for some seconds.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.own_failures import own_failures
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.telemetry.correlation import tag_log_lines
from cosmos_outbox.wiring.service import Wired
from cosmos_outbox.wiring.transports import needed_over
from cosmos_outbox.worker import probes
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker import subscriber as subscriber_worker
from cosmos_outbox.worker.probes import DRAIN_SECONDS, STUCK_SECONDS
from cosmos_outbox.worker.subscriber import Subscribed

W = TypeVar("W", bound=Subscribed)
W_co = TypeVar("W_co", bound=Subscribed, covariant=True)

END_SECONDS = DRAIN_SECONDS + 5.0
"""How long the end of the block may take: the workers end what is in hand, then give back what they hold."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0

_log = logging.getLogger(__name__)


@dataclass
class _Part:
    """A worker in this process. Each time that it begins it has a new health."""

    name: str
    begin: "Callable[[_Part], tuple[probes.Health, Awaitable[None]]]"
    """How it is, and what it does until it is told to stop."""
    stop: asyncio.Event
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has tried to start: then it works, or waits for what is away."""
    health: probes.Health | None = None
    failure: str | None = None
    """Why it has ended; None: it works."""

    async def keep_up(self, entered: asyncio.Event) -> None:
        """Work until told to stop, whatever ends the work before. Raises until the block is ``entered``."""
        pause = _FIRST_PAUSE_SECONDS
        while not self.stop.is_set():
            (self.health, work), self.failure = self.begin(self), None
            at = monotonic()
            try:
                with own_failures():
                    await work
            except Exception as error:
                if isinstance(error, Misconfigured) and not entered.is_set():
                    raise
                self.failure = f"the {self.name} has ended, and begins again: the log says why"
                if monotonic() - at > _LONGEST_PAUSE_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS
                _log.exception("the %s has ended, and begins again in %.0f s", self.name, pause)
                await probes.wait(self.stop, pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def trouble(self) -> str | None:
        """Why events wait now."""
        if self.health is None:
            return f"the {self.name} has not begun"
        return self.failure or await self.health.trouble()


@dataclass(frozen=True)
class RunningHealth:
    """How the workers of this process are, for the program's own probes. Can be answered as a ``Vitals`` of those."""

    parts: Sequence[_Part]

    @property
    def alive(self) -> bool:
        """False: a loop of a worker hangs, which only a restart of the process mends."""
        return self.silent_seconds <= max(STUCK_SECONDS, self.longest_round_seconds)

    @property
    def silent_seconds(self) -> float:
        """Since the slowest of the workers' loops came round."""
        return max((part.health.silent_seconds for part in self.parts if part.health), default=0.0)

    @property
    def longest_round_seconds(self) -> float:
        """How long a round may take where all is well but slow."""
        return max((part.health.longest_round_seconds for part in self.parts if part.health), default=0.0)

    async def trouble(self) -> str | None:
        """Why events wait now, without names or addresses; None: they do not."""
        for part in self.parts:
            if reason := await part.trouble():
                return reason
        return None

    def line(self) -> str:
        """What was done, and what is in the way, for a log."""
        return "; ".join(
            f"{part.name}: {part.failure or part.health.line()}" for part in self.parts if part.health
        )


@dataclass(frozen=True)
class Running(Generic[W]):
    """A service in this process, with its relay and its subscribers at work."""

    wired: W
    health: RunningHealth


class DeclaredService(Protocol[W_co]):
    """A service as it is declared: one that publishes, or one that only subscribes."""

    def wire(self, environment: Mapping[str, str]) -> W_co:
        """Build the service from settings. Opens no connection. Raises Misconfigured."""

    def taken_from(self, wired: Any) -> AbstractContextManager[None]:
        """Until the block ends, a call of the service in this loop gives this one."""


@asynccontextmanager
async def running(
    service: DeclaredService[W],
    *,
    relay: bool = True,
    subscribers: bool = True,
    environment: Mapping[str, str] | None = None,
    slots: int = subscriber_worker.SLOTS,
) -> AsyncIterator[Running[W]]:
    """Wire a service in this loop, with its relay and its subscribers at work until the block ends.

    Inside the block ``service()`` is this same service, whose commits wake the relay. ``relay`` and ``subscribers`` say
    which of the two work here. ``environment``: the settings; None: the process's own. ``slots``: how many sessions of
    each subscription are held side by side. The block's value tells ``health``: its ``trouble()`` answers a probe. The
    end of the block waits up to 25 seconds for what is in hand.

    Raises Misconfigured: a setting or the deployment is wrong.
    """
    tag_log_lines()
    wired = service.wire(os.environ if environment is None else environment)
    stop, entered = asyncio.Event(), asyncio.Event()
    async with wired.resources:
        parts = list(_parts(wired, stop, relay=relay, subscribers=subscribers, slots=slots))
        at_work: list[asyncio.Task[None]] = []
        try:
            with service.taken_from(wired):
                for part in parts:  # one by one: nothing is received by a program that does not begin
                    at_work.append(asyncio.create_task(part.keep_up(entered), name=part.name))
                    await _wait_until_tried(part, at_work)
                entered.set()
                yield Running(wired, RunningHealth(parts))
        finally:
            stop.set()
            await _end(at_work)


def _parts(
    wired: Subscribed, stop: asyncio.Event, *, relay: bool, subscribers: bool, slots: int
) -> Iterator[_Part]:
    if relay and isinstance(wired, Wired):
        needed_over(wired.settings.transport.name)
        outbox = wired.outbox

        def relaying(part: _Part) -> tuple[probes.Health, Awaitable[None]]:
            health = relay_worker.health_of(outbox, stop, part.tried)
            return health, relay_worker.work(health)

        yield _Part("relay", relaying, stop)
    if subscribers and wired.subscriptions:
        for subscription in wired.subscriptions.values():
            subscription.subscriber.queues()  # a connection that cannot be right ends the program at once

        def subscribing(part: _Part) -> tuple[probes.Health, Awaitable[None]]:
            part.tried.set()
            health = subscriber_worker.health_of(wired, stop)
            return health, subscriber_worker.serve(wired, stop, health, slots=slots)

        yield _Part("subscriber", subscribing, stop)


async def _wait_until_tried(part: _Part, at_work: Sequence[asyncio.Task[None]]) -> None:
    """Returns when the worker has tried to start. Raises what ended it, or one before it."""
    trying = asyncio.create_task(part.tried.wait())
    either: list[asyncio.Future[Any]] = [trying, *at_work]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for task in at_work:
            if task.done():
                task.result()
    finally:
        trying.cancel()
        await asyncio.wait({trying})


async def _end(at_work: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the workers, which were told to stop; what is left after that is cut off, and is done elsewhere."""
    if not at_work:
        return
    try:
        await asyncio.wait(at_work, timeout=END_SECONDS)
    finally:
        for task in at_work:
            task.cancel()
    await asyncio.gather(*(each for each in at_work if not each.done()), return_exceptions=True)
    for task in at_work:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a worker has ended with an error that was raised before", exc_info=error)
