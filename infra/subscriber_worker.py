"""A worker and the subscriber function can replace one another: both handle a message in the same way.

The worker is the subscriber outside Functions, for containers: ``python -m infra.subscriber_worker``, and perhaps
``--service MODULE``. It reads the same settings, serves all subscriptions of the service, receives sessions side by
side, and does what the timers do: it collects dead letters, tries what was set aside, goes on with effects that wait,
and sweeps. Several workers share the sessions, and the progress of the sweep. A stop waits for the messages and effects
in hand for some seconds, then leaves them to the next worker.
"""

from infra import installed

if __name__ == "__main__":
    installed.require("subscriber worker")

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from inbox.errors import StoreAway
from inbox.receiver import LONGEST_CALL_SECONDS, told
from infra import probes, worker
from infra.errors import InfraError
from infra.probes import Address
from infra.servicebus.sessions import Work
from infra.subscriber import Subscription
from infra.wiring import Outbox
from infra.worker import DRAIN_SECONDS
from outbox.errors import OutboxError
from outbox.once_a_minute import OnceAMinute

SLOTS = 32
"""How many sessions of a subscription are held at the same time, as in host.json."""

WATCH_SECONDS = 60.0
UPKEEP_EVERY_SECONDS, UPKEEP_SECONDS = 60.0, 40.0
SWEEP_EVERY_SECONDS, SWEEP_SECONDS = 600.0, 120.0

_log = logging.getLogger(__name__)


class Subscribed(Protocol):
    """A service that has subscribers."""

    @property
    def outbox(self) -> Outbox: ...
    @property
    def subscriptions(self) -> Sequence[Subscription]: ...


@dataclass(frozen=True)
class Health:
    """How the subscribers are: what their slots did last, and whether the store answers."""

    outbox: Outbox
    works: Sequence[Work]
    """Of each subscription: one that is served well does not hide one that is not."""
    stop: asyncio.Event
    saying: OnceAMinute = field(default_factory=OnceAMinute)

    @property
    def silent_seconds(self) -> float:
        """Since the slowest slot asked for a session or handled a message."""
        return max((pulse.silent_seconds for work in self.works for pulse in work.pulses), default=0.0)

    @property
    def longest_round_seconds(self) -> float:
        """Of a message; a session that has none is waited for for a shorter time."""
        return LONGEST_CALL_SECONDS

    async def trouble(self) -> str | None:
        """Why no message is applied."""
        if self.stop.is_set():
            return "the worker is told to stop"
        if self._waiting_for:
            return "messages wait: the log says why"
        try:
            await self.outbox.check()
        except (OutboxError, InfraError) as error:
            if self.saying.due():
                _log.error("the store cannot be used: %s", error)
            return "the store cannot be used: the log says why"
        return None

    def line(self) -> str:
        """The sessions, the messages, and what is in the way."""
        sessions, received = sum(work.sessions for work in self.works), self.received
        waiting = f"messages wait: {'; '.join(self._waiting_for)}" if self._waiting_for else "no failure"
        return f"{sessions} session(s), {received} message(s) received, {waiting}"

    @property
    def received(self) -> int:
        """How many messages were handled."""
        return sum(work.received for work in self.works)

    @property
    def _waiting_for(self) -> Sequence[str]:
        return [work.waiting_for for work in self.works if work.waiting_for is not None]


async def run(
    service: Subscribed, stop: asyncio.Event, address: Address | None = None, *, slots: int = SLOTS
) -> None:
    """Receive until ``stop`` is set, answering probes at ``address``. Returns when the clients are closed.

    Raises Misconfigured.
    """
    health = Health(service.outbox, [Work() for _ in service.subscriptions], stop)
    async with service.outbox.resources, probes.answered(address, health):
        await _served(service, stop, health, slots)
    _log.info("stopped: %d message(s) received", health.received)


async def _served(service: Subscribed, stop: asyncio.Event, health: Health, slots: int) -> None:
    """Serve the sessions, with the other work beside it. Raises what ended the serving."""
    tending, others = set[asyncio.Task[None]](), [asyncio.create_task(worker.tell_health(health, stop))]
    for each in service.subscriptions:
        watch = _every(WATCH_SECONDS, stop, "what was set aside waits", each.subscriber.watch)
        tending.add(asyncio.create_task(watch))
        if each.upkeep is not None:
            run_effects = partial(each.upkeep.run, seconds=UPKEEP_SECONDS)
            tending.add(asyncio.create_task(_every(UPKEEP_EVERY_SECONDS, stop, "effects wait", run_effects)))
        if each.sweep is not None:
            sweep = partial(each.sweep.run, seconds=SWEEP_SECONDS)
            others.append(asyncio.create_task(_every(SWEEP_EVERY_SECONDS, stop, "the sweep waits", sweep)))
    serving = asyncio.create_task(_received(service.subscriptions, stop, health.works, slots))
    stopping = asyncio.create_task(stop.wait())
    _log.info("the subscriber works; SIGTERM stops it")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await asyncio.wait({serving, *tending}, timeout=DRAIN_SECONDS)
    ended = [*tending, *others, serving, stopping]
    for task in ended:
        task.cancel()
    await asyncio.wait(ended)
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


async def _received(
    subscriptions: Sequence[Subscription], stop: asyncio.Event, works: Sequence[Work], slots: int
) -> None:
    """Serve the sessions of all subscriptions until ``stop`` is set. Raises Misconfigured."""
    served = [(each.subscriber.queues().sessions, each.subscriber.receiver.receive) for each in subscriptions]
    async with asyncio.TaskGroup() as group:
        for (sessions, receive), work in zip(served, works, strict=True):
            group.create_task(sessions.serve(receive, stop, work, slots=slots))


async def _every(
    seconds: float, stop: asyncio.Event, waits: str, work: Callable[[], Awaitable[object]]
) -> None:
    """Work again and again until ``stop`` is set; ``waits`` is what a failure holds up."""
    while not await worker.wait(stop, seconds):
        try:
            await work()
        except (StoreAway, OutboxError) as error:
            _log.error("%s: %s", waits, error)
        except Exception as error:  # noqa: BLE001 - nobody else would notice that the loop has ended
            _log.error("%s, because of a bug: %s", waits, told(error))


COMMAND = worker.Command(
    "infra.subscriber_worker",
    "subscriber worker",
    "Receive the messages of the service's subscriptions until told to stop.",
    run,
)

if __name__ == "__main__":
    sys.exit(worker.main(COMMAND))
