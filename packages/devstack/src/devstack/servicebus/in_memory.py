"""The same broker without a socket or a file: who connects gives each end of a connection its transport.

What it answers depends on what it is sent, on the running loop's time, on the clock and on the ``random.Random`` that
it is given, and on nothing else: the same of these give the same bytes in the same order.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from devstack.servicebus.admin.application import happens_now, make_application
from devstack.servicebus.amqp.cbs import DEVELOPMENT_KEY
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Fault, Faults, Traffic
from devstack.servicebus.amqp.store import FORMAT, Store
from devstack.servicebus.amqp.transport import Context, Transport
from devstack.servicebus.broker.onlooker import Onlooker
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.config import declare, descriptions_of
from devstack.servicebus.nodes import Nodes
from devstack.servicebus.server import DEFAULT_IDLE_SECONDS
from devstack.sqlite_file import in_memory as database_in_memory

__all__ = ["Fault", "Faults", "Onlooker", "ServiceBusInMemory", "in_memory"]


class ServiceBusInMemory:
    """One namespace. Made by :func:`in_memory`."""

    def __init__(self, engine: Engine, faults: Faults, traffic: Traffic) -> None:
        self._engine = engine
        self._transports: dict[Transport, None] = {}
        nodes = Nodes(engine, faults, DEVELOPMENT_KEY, traffic)
        self._context = Context(engine, DEVELOPMENT_KEY, faults, nodes.attach, DEFAULT_IDLE_SECONDS)
        self.faults = faults
        self.traffic = traffic
        self.management = make_application(engine, faults, traffic, self._transports, with_faults=True)
        """The management API, an application of aiohttp for the caller to serve."""

    def connection(self) -> asyncio.Protocol:
        """The broker's end of a new AMQP connection: call ``connection_made`` with its transport."""
        return Transport(self._context, self._transports)

    def happen(self, fault: Fault) -> None:
        """What shall befall the next sends, tokens or connections, or befalls all links and connections now."""
        if not happens_now(self._transports, fault):
            self.faults.add(fault)

    def show(self, onlooker: Onlooker) -> None:
        """From now on each step of the entities that there are is shown to the onlooker."""
        namespace = self._engine.namespace
        namespace.onlooker = onlooker
        for entity in namespace.entities():
            entity.queue.onlooker = onlooker

    def messages(self, path: str) -> int:
        """How many a queue or subscription holds, its dead letters and what is locked among them."""
        queue = self._queue(path)
        return queue.message_count + (0 if queue.dead_letter is None else queue.dead_letter.message_count)

    def take_away(self, path: str, session: str | None = None) -> bool:
        """Somebody else receives and deletes a message of a subscription, of this session; False: there is none."""
        queue = self._queue(path)
        held = None if session is None else queue.sessions.get(session)
        taken = queue.take_and_delete(held) if session is None or held is not None else None
        self._engine.touch(queue)
        return taken is not None

    def lose(self, path: str, message_id: str) -> bool:
        """Somebody else receives and deletes this message; False: it is not there, or a receiver has it."""
        queue = self._queue(path)
        if (message := queue.free(message_id)) is None:
            return False
        queue.forwarded(message)
        self._engine.touch(queue)
        return True

    def bury(self, path: str, message_id: str, reason: str) -> bool:
        """Somebody else makes this message a dead letter; False: it is not there, or a receiver has it."""
        queue = self._queue(path)
        if (message := queue.free(message_id)) is None:
            return False
        queue.dead_letter_now(message, reason, reason, self._engine.now())
        self._engine.touch(queue)
        return True

    def lose_lock(self, path: str, session: str) -> bool:
        """A session's lock ends before its time; False: nobody holds it."""
        queue = self._queue(path)
        held = queue.sessions.get(session)
        if held is None or held.lock is None:
            return False
        queue.lose_session(held, self._engine.now())
        self._engine.touch(queue)
        return True

    def _queue(self, path: str) -> Queue:
        return self._engine.namespace.readable(path)


@contextlib.contextmanager
def in_memory(
    *,
    clock: Callable[[], float],
    chance: random.Random,
    config: Mapping[str, Any] | None = None,
    faults: Faults | None = None,
) -> Iterator[ServiceBusInMemory]:
    """A namespace with the entities of a Config.json; gone when the block ends. Entered inside the running loop.

    ``clock``: Unix time, which must run as the loop's does. ``faults``: draws faults; None: those that are asked for
    happen. Raises CannotStart for a wrong ``config``.
    """
    with database_in_memory(FORMAT) as connection:
        engine = Engine(Store(connection), clock, chance)
        declare(engine, descriptions_of(config) if config else [])
        engine.start()
        try:
            yield ServiceBusInMemory(engine, faults or Faults(clock, chance), Traffic())
        finally:
            engine.stop()
