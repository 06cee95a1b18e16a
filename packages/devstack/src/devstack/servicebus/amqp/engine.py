"""No client hears of a change before it is durable: answers wait for the commit that ends each turn of the loop.

All that arrives in one turn of the event loop is applied, then stored in one transaction, then answered; then readers
get what became available.
"""

import asyncio
import functools
import os
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Protocol

from devstack.servicebus.amqp.store import Store
from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.entity import Entity
from devstack.servicebus.broker.namespace import Namespace
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.codec.errors import NOT_FOUND, AmqpError

_FORGET_SECONDS = 30.0
_DISK_FAILED = 74
"""Exit code when a commit fails: EX_IOERR of sysexits.h."""


class Pump(Protocol):
    """Something that may have more to send than it could before."""

    def pump(self) -> None:
        """Take what there is."""


class Reader(Pump, Protocol):
    """Something that waits for a queue: a receiver's link, or a receiver that asked for any session."""

    def entity_gone(self, error: AmqpError) -> None:
        """The queue was deleted or disabled."""


class Engine:
    """The broker, its store and its clock, driven by the event loop."""

    def __init__(
        self, store: Store, clock: Callable[[], float] = time.time, chance: random.Random | None = None
    ) -> None:
        """``chance``: see :class:`Namespace`."""
        self.store = store
        self.namespace = Namespace(store, chance)
        self._clock = clock
        self._now_ms = 0
        self._answers: list[Callable[[], None]] = []
        self._readers: dict[Queue, dict[Reader, None]] = {}
        self._dirty: dict[Queue, None] = {}
        self._woken: dict[Pump, None] = {}
        self._pumped: list[Callable[[], None]] = []
        self._touched: dict[int, None] = {}
        self._flush_due = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._forget_timer: asyncio.TimerHandle | None = None
        self._restore()

    # -- life

    def start(self) -> None:
        """Begin to keep time; called inside the running loop."""
        for entity in self.namespace.entities():
            self.touch(entity.queue)
        self._forget_duplicates()

    def stop(self) -> None:
        """What is due now is never done: the owner of the store commits what it gathered."""
        self._stopped = True
        for timer in (self._timer, self._forget_timer):
            if timer is not None:
                timer.cancel()

    # -- a turn

    def now(self) -> int:
        """Milliseconds since the epoch, never going back; whatever was due by then has been done."""
        self._now_ms = max(self._now_ms, int(self._clock() * 1000))
        due = self.namespace.next_deadline()
        if due is not None and due <= self._now_ms:
            self.namespace.advance(self._now_ms)
            self._schedule()
        return self._now_ms

    def touch(self, queue: Queue) -> None:
        """The queue was used in this turn: it may have changes to store, and new deadlines."""
        self._touched[queue.entity] = None
        self._schedule()

    def when_durable(self, answer: Callable[[], None]) -> None:
        """Run ``answer`` once everything that was done so far is stored."""
        self._answers.append(answer)
        self._schedule()

    def _schedule(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._stopped:
            return
        self._flush_due = False
        try:
            self.store.commit()
        except sqlite3.Error as error:
            print(f"servicebus: cannot write the data file: {error}", file=sys.stderr, flush=True)
            os._exit(_DISK_FAILED)  # memory is ahead of the file now: the file is what counts
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()
        woken, self._woken = self._woken, {}
        for source in woken:
            source.pump()
        dirty, self._dirty = self._dirty, {}
        for queue in dirty:
            self._pump(queue)
        pumped, self._pumped = self._pumped, []
        for call in pumped:
            call()
        touched, self._touched = self._touched, {}
        for entity_id in touched:
            entity = self.namespace.by_id(entity_id)
            if entity is not None:
                self.namespace.watch(entity)
        self._set_timer()

    def _set_timer(self) -> None:
        due = self.namespace.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            delay = max(0.0, due / 1000 - self._clock()) + 0.001
            self._timer = asyncio.get_running_loop().call_later(delay, self.now)

    def _forget_duplicates(self) -> None:
        self.namespace.expire_duplicates(self.now())
        self._schedule()
        self._forget_timer = asyncio.get_running_loop().call_later(_FORGET_SECONDS, self._forget_duplicates)

    # -- readers

    def add_reader(self, queue: Queue, reader: Reader) -> None:
        self._readers.setdefault(queue, {})[reader] = None

    def remove_reader(self, queue: Queue, reader: Reader) -> None:
        readers = self._readers.get(queue)
        if readers is not None:
            readers.pop(reader, None)
            if not readers:
                del self._readers[queue]

    def offer(self, queue: Queue) -> None:
        """Let the queue's readers look once this turn is stored."""
        self._dirty[queue] = None
        self._schedule()

    def wake(self, source: Pump) -> None:
        """Let one source look once this turn is stored: it has more credit."""
        self._woken[source] = None
        self._schedule()

    def when_pumped(self, call: Callable[[], None]) -> None:
        """Run ``call`` after this turn is stored and everyone has sent what there was."""
        self._pumped.append(call)
        self._schedule()

    def _pump(self, queue: Queue) -> None:
        readers = self._readers.get(queue)
        if not readers:
            return
        for reader in list(readers):
            reader.pump()
        first = next(iter(readers), None)
        if first is not None and len(readers) > 1:  # the first is last next time
            readers.pop(first)
            readers[first] = None

    # -- entities

    def create(self, description: Description) -> Entity:
        """Add an entity. Raises :class:`AmqpError` or ValueError, having stored nothing."""
        if self.namespace.find(description.path) is None:
            return self._attach(self._create(description))
        return self.namespace.add(0, description)  # raises: it exists

    def _create(self, description: Description) -> Entity:
        number = self.store.add_entity(description)
        try:
            return self.namespace.add(number, description)
        except (AmqpError, ValueError):
            self.store.delete_entity(number)
            raise

    def update(self, description: Description) -> Entity:
        entity = self.namespace.update(description)
        self.store.update_entity(entity.id, description)
        if not description.can_receive:
            self._dismiss(
                entity, AmqpError("com.microsoft:entity-disabled", f"'{description.path}' is disabled.")
            )
        return entity

    def delete(self, path: str) -> None:
        removed = self.namespace.delete(path)
        # First: a reader that lets go of what it held may still change what is stored of the entity.
        for entity in removed:
            self._dismiss(entity, AmqpError(NOT_FOUND, f"The messaging entity '{path}' could not be found."))
        for entity in removed:
            self.store.delete_entity(entity.id)

    def _dismiss(self, entity: Entity, error: AmqpError) -> None:
        for queue in (entity.queue, entity.queue.dead_letter):
            for reader in list(self._readers.get(queue, ())) if queue is not None else ():
                reader.entity_gone(error)

    def _attach(self, entity: Entity) -> Entity:
        for queue in (entity.queue, entity.queue.dead_letter):
            if queue is not None:
                queue.on_available = functools.partial(self.offer, queue)
        return entity

    def _restore(self) -> None:
        for number, description, following in self.store.stored_entities():
            entity = self.namespace.add(number, description)
            entity.queue.restore_sequence(following)
        for number, key, at in self.store.stored_seen():
            window = self._entity(number).duplicates
            if window is not None:
                window.restore(key, at)
        for session in self.store.stored_sessions():
            held = self._entity(session.entity).queue.sessions.ensure(session.session)
            held.state, held.state_updated_ms = session.state, session.updated_ms
        for number, message in self.store.stored_messages():
            queue = self._entity(number).queue
            target = queue.dead_letter if message.dead and queue.dead_letter is not None else queue
            target.restore(message)
        for entity in self.namespace.entities():
            self._attach(entity)

    def _entity(self, number: int) -> Entity:
        entity = self.namespace.by_id(number)
        assert entity is not None, "the store names an entity that it does not hold"
        return entity
