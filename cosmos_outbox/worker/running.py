"""Runs a service's relay and subscribers inside any program, beside its own work: ``async with running(service)``.

They are the workers of ``cosmos-outbox relay`` and ``cosmos-outbox subscriber``, as tasks of this process, with the
same leases, timers and limits. So processes that run them, workers and function apps share the work.

Errors in the settings or the deployment are raised before the block begins. An unavailable store is no such error: the
block begins, and the workers wait for the store. A worker that fails inside the block is logged and restarted instead
of ending the program: a web server would go on without it and hide the error (uvicorn takes a lifespan that ended for
one that is not supported), and events would wait unnoticed. The end of the block waits some seconds for current work.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import own_failures
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.errors import Misconfigured, needed
from cosmos_outbox.telemetry.correlation import tag_log_lines
from cosmos_outbox.telemetry.liveness import wait
from cosmos_outbox.worker import probes
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker import subscriber as subscriber_worker
from cosmos_outbox.worker.probes import DRAIN_SECONDS, STUCK_SECONDS

END_SECONDS = DRAIN_SECONDS + 5.0
"""The longest time of the block's end: the workers end their current work, then release what they hold."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0

_log = logging.getLogger(__name__)


@dataclass
class _Part:
    """A worker in this process. Each start creates a new health."""

    name: str
    begin: "Callable[[_Part], tuple[probes.Health, Awaitable[None]]]"
    """Returns its health, and the work that runs until a stop is requested."""
    stop: asyncio.Event
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has tried to start: then it works, or waits for what is unavailable."""
    health: probes.Health | None = None
    failure: str | None = None
    """The error that ended it; None: it works."""

    async def keep_up(self, entered: asyncio.Event) -> None:
        """Works until a stop, restarting after errors. Raises Misconfigured only until the block is ``entered``."""
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
                self.failure = f"the {self.name} has failed, and is restarted: the log says why"
                if monotonic() - at > _LONGEST_PAUSE_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS
                _log.exception("the %s has failed, and is restarted in %.0f s", self.name, pause)
                await wait(self.stop, pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def trouble(self) -> str | None:
        """Returns why events wait now."""
        if self.health is None:
            return f"the {self.name} has not begun"
        return self.failure or await self.health.trouble()


@dataclass(frozen=True)
class RunningHealth:
    """The state of this process's workers, for the program's own probes. Can be served as ``Health``."""

    parts: Sequence[_Part]

    @property
    def alive(self) -> bool:
        """False: a loop of a worker hangs, and only a restart of the process helps."""
        return self.silent_seconds <= max(STUCK_SECONDS, self.longest_round_seconds)

    @property
    def silent_seconds(self) -> float:
        """The time since the slowest of the workers' loops completed a round."""
        return max((part.health.silent_seconds for part in self.parts if part.health), default=0.0)

    @property
    def longest_round_seconds(self) -> float:
        """The longest time of a round that is slow but healthy."""
        return max((part.health.longest_round_seconds for part in self.parts if part.health), default=0.0)

    async def trouble(self) -> str | None:
        """Returns why events wait now, without names or addresses; None: they do not."""
        for part in self.parts:
            if reason := await part.trouble():
                return reason
        return None

    def line(self) -> str:
        """Returns one line for a log about the work done and the current problem."""
        return "; ".join(
            f"{part.name}: {part.failure or part.health.line()}" for part in self.parts if part.health
        )


@dataclass(frozen=True)
class Running:
    """A service in this process, with its relay and its subscribers at work."""

    wired: Wired
    health: RunningHealth


@asynccontextmanager
async def running(
    service: Service,
    *,
    relay: bool = True,
    subscribers: bool = True,
    environment: Mapping[str, str] | None = None,
    slots: int = subscriber_worker.SLOTS,
) -> AsyncIterator[Running]:
    """Wire a service in this loop, with its relay and its subscribers at work until the block ends.

    Inside the block ``service()`` is this same service, whose commits wake the relay. ``relay`` and ``subscribers``
    select which of the two run here. ``environment``: the settings; None: the process's own. ``slots``: how many
    sessions of each subscription are held at once. The block's value has ``health``, whose ``trouble()`` answers a
    probe. The end of the block waits up to 25 seconds for current work.

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
                for part in parts:  # one by one: a program that fails to begin must receive nothing
                    at_work.append(asyncio.create_task(part.keep_up(entered), name=part.name))
                    await _wait_until_tried(part, at_work)
                entered.set()
                yield Running(wired, RunningHealth(parts))
        finally:
            stop.set()
            await _end(at_work)


def _parts(
    wired: Wired, stop: asyncio.Event, *, relay: bool, subscribers: bool, slots: int
) -> Iterator[_Part]:
    if relay and wired.service.publishes:
        needed(wired.settings.transport.name)

        def relaying(part: _Part) -> tuple[probes.Health, Awaitable[None]]:
            health = relay_worker.health_of(wired, stop, part.tried)
            return health, relay_worker.work(health)

        yield _Part("relay", relaying, stop)
    if subscribers and wired.subscriptions:
        for subscription in wired.subscriptions.values():
            subscription.subscriber.queues()  # an invalid connection ends the program at once

        def subscribing(part: _Part) -> tuple[probes.Health, Awaitable[None]]:
            part.tried.set()
            health = subscriber_worker.health_of(wired, stop)
            return health, subscriber_worker.serve(wired, stop, health, slots=slots)

        yield _Part("subscriber", subscribing, stop)


async def _wait_until_tried(part: _Part, at_work: Sequence[asyncio.Task[None]]) -> None:
    """Returns when the worker has tried to start. Raises the error that ended it, or one before it."""
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
    """Waits for the workers after a stop, then cancels the rest, which other processes take over."""
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
