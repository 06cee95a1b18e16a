"""Runs the subscribers outside Functions, for containers: ``cosmos-outbox subscriber``.

A worker and the subscriber function are interchangeable: both handle a message in the same way. The worker reads the
same settings, serves all subscriptions of the service, receives several sessions at once, and does the timers' work: it
collects dead letters, retries messages that were set aside, and compares read models with their source. Several workers
share the sessions, and the progress of a comparison. A stop waits for current messages and effects for some seconds,
then leaves them to the next worker.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from cosmos_outbox.inbox.errors import InboxError
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.operations.subscriber import Subscription
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.service import Wired
from cosmos_outbox.worker import probes
from cosmos_outbox.worker.probes import DRAIN_SECONDS, Address, WorkerHealth, every

if TYPE_CHECKING:
    from cosmos_outbox.telemetry.liveness import SlotHealth

CANCEL_SECONDS = 5.0
"""The longest time that a stop waits for the tasks it has cancelled."""

SLOTS = 32
"""The number of sessions of a subscription that are held at once, as in host.json."""

WATCH_SECONDS = 60.0
WALK_EVERY_SECONDS, WALK_SECONDS = 600.0, 200.0

_log = logging.getLogger(__name__)


@dataclass
class SubscriberHealth(WorkerHealth):
    """The subscribers' state: the last result of each slot, and whether the store answers."""

    loops: "Sequence[SlotHealth]"
    """The health of each subscription, apart, so that a healthy one does not hide another that fails."""

    @property
    def silent_seconds(self) -> float:
        """The time since the slowest slot asked for a session or handled a message."""
        return max((each.silent_seconds for each in self.loops), default=0.0)

    @property
    def longest_round_seconds(self) -> float:
        """The longest time of a message; the wait for a session is shorter."""
        return LONGEST_CALL_SECONDS

    def waiting(self) -> str | None:
        """Returns why no message is applied."""
        return "messages wait: the log says why" if self._waiting_for else None

    def line(self) -> str:
        """Returns one line about the sessions, the messages and the current problem."""
        sessions, received = sum(each.sessions for each in self.loops), self.received
        waiting = f"messages wait: {'; '.join(self._waiting_for)}" if self._waiting_for else "no failure"
        return f"{sessions} session(s), {received} message(s) received, {waiting}"

    @property
    def received(self) -> int:
        """The number of handled messages."""
        return sum(each.received for each in self.loops)

    @property
    def _waiting_for(self) -> Sequence[str]:
        return [each.waiting_for for each in self.loops if each.waiting_for is not None]


async def run(
    service: Wired, stop: asyncio.Event, address: Address | None = None, *, slots: int = SLOTS
) -> None:
    """Receives until ``stop`` is set, answering probes at ``address``. Returns when the clients are closed.

    Raises Misconfigured.
    """
    health = health_of(service, stop)
    async with service.resources, probes.answered(address, health):
        await serve(service, stop, health, slots=slots)
    _log.info("stopped: %d message(s) received", health.received)


def health_of(service: Wired, stop: asyncio.Event) -> SubscriberHealth:
    """Of subscribers that are to begin: for :func:`serve`, once."""
    from cosmos_outbox.telemetry.liveness import SlotHealth  # noqa: PLC0415 - not where nothing is received

    return SubscriberHealth(service, stop, [SlotHealth() for _ in service.subscriptions])


async def serve(service: Wired, stop: asyncio.Event, health: SubscriberHealth, *, slots: int = SLOTS) -> None:
    """Serve the sessions, with the other work beside it. Raises Misconfigured, and what ended the serving."""
    with suppress(OutboxError, InboxError):  # an unavailable store is waited for
        await service.check()
    tending, others = set[asyncio.Task[None]](), [asyncio.create_task(health.log())]
    for each in service.subscriptions.values():
        watch = every(WATCH_SECONDS, stop, "what was set aside waits", each.subscriber.watch)
        tending.add(asyncio.create_task(watch))
        if each.healing is not None:
            walk = partial(each.healing.run, seconds=WALK_SECONDS)
            others.append(asyncio.create_task(every(WALK_EVERY_SECONDS, stop, "the walk waits", walk)))
    serving = asyncio.create_task(_receive([*service.subscriptions.values()], stop, health.loops, slots))
    stopping = asyncio.create_task(stop.wait())
    _log.info("the subscriber works")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await asyncio.wait({serving, *tending}, timeout=DRAIN_SECONDS)
    ended = [*tending, *others, serving, stopping]
    for task in ended:
        task.cancel()
    _, left = await asyncio.wait(ended, timeout=CANCEL_SECONDS)
    if left:
        _log.error(
            "%d task(s) of the subscriber do not end when they are cancelled: an effect must let CancelledError pass",
            len(left),
        )
    if serving.done() and not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


async def _receive(
    subscriptions: Sequence[Subscription], stop: asyncio.Event, loops: "Sequence[SlotHealth]", slots: int
) -> None:
    """Serves the sessions of all subscriptions until ``stop`` is set. Raises Misconfigured."""
    serve = [(each.subscriber.queues().sessions, each.subscriber.receiver.receive) for each in subscriptions]
    async with asyncio.TaskGroup() as group:
        for (sessions, receive), each in zip(serve, loops, strict=True):
            group.create_task(sessions.serve(receive, stop, each, slots=slots))
