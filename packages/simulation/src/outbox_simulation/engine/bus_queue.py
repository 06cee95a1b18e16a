"""A subscription's sessions: one holder and one message at a time, in the topic's order; an expired lock counts.

A delivery that was not completed is counted when it was abandoned or its lock ran out, not when its session was
released. After the last delivery that its rules allow a message is a dead letter, and dead letters never expire.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from cosmos_outbox.testing.messages import Message

T = TypeVar("T")

MAX_DELIVERIES = "MaxDeliveryCountExceeded"


@dataclass(frozen=True)
class Rules:
    """The settings of the topic and its subscriptions; the defaults are those of the service."""

    duplicate_window_seconds: float = 600.0
    lock_seconds: float = 60.0
    max_deliveries: int = 10


@dataclass(frozen=True)
class Sent:
    """A message with the properties that the broker uses."""

    message: Message
    aggregate: str
    """The aggregate's id."""
    session: str
    correlation_id: str | None = None
    subject: str | None = None
    """The subject sent over the wire; None: none was sent, and the body has all."""


@dataclass(frozen=True)
class Taken:
    """A message that the topic has taken."""

    at: float
    """The time by the loop's clock."""
    number: int
    sent: Sent


@dataclass(eq=False)
class Queued:
    """A message in a subscription."""

    taken: Taken
    deliveries: int = 0
    """The number of deliveries that ended without a settlement and count."""
    reason: str | None = None
    """Why it is a dead letter."""
    lock: object | None = None
    """Its current holder."""


@dataclass(eq=False)
class Session:
    """The messages of one session, by their numbers; a returned message gets its old place."""

    id: str
    messages: dict[int, Queued] = field(default_factory=dict)
    lock: "Lock | None" = None

    @property
    def ready(self) -> Queued | None:
        """Returns the next message without a holder."""
        return next((held for held in self.messages.values() if held.lock is None), None)


@dataclass(eq=False)
class Lock:
    """A hold of a session."""

    session: Session
    until: float
    """The time by the loop's clock."""


class Note(Protocol):
    """Records steps, as :meth:`outbox_simulation.engine.trace.Trace.note`."""

    def __call__(self, what: str, about: str = "", detail: str = "") -> None: ...


class Broker(Protocol):
    """The broker's methods that a subscription uses."""

    rules: Rules
    note: Note

    def now(self) -> float:
        """The time of the running loop's clock."""

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls it later in the broker's own context."""


@dataclass(eq=False)
class _Waiter:
    """A waiting call that checks again whenever something changes."""

    look: Callable[[], bool]
    """Takes a result; False: there is none."""


class Queue:
    """One subscription at its broker: each method is carried out at once."""

    def __init__(self, name: str, bus: Broker) -> None:
        self.name = name
        self.dead: dict[int, Queued] = {}
        self._bus = bus
        self._sessions: dict[str, Session] = {}
        self._waiters: dict[_Waiter, None] = {}

    # -- content

    def put(self, taken: Taken) -> None:
        """Adds a message that the topic has taken."""
        session = self._sessions.setdefault(taken.sent.session, Session(taken.sent.session))
        session.messages[taken.number] = Queued(taken)
        self._changed()

    def bury(self, taken: Taken) -> None:
        """Dead-letters it before its subscriber has seen it."""
        self.dead[taken.number] = Queued(taken, reason="buried by somebody else")
        self._changed()

    def waiting(self) -> list[Queued]:
        """Returns the messages without a holder that are no dead letters."""
        return [
            held for each in self._sessions.values() for held in each.messages.values() if held.lock is None
        ]

    def __len__(self) -> int:
        """The number of all messages, dead letters included."""
        return len(self.dead) + sum(len(each.messages) for each in self._sessions.values())

    def remove(self, held: Queued) -> None:
        """Removes it from the subscription."""
        session = self._sessions[held.taken.sent.session]
        session.messages.pop(held.taken.number, None)
        if not session.messages and session.lock is None:
            del self._sessions[session.id]

    # -- waiting

    def wait(
        self, seconds: float, find: Callable[[], T | None], answer: Callable[[T | None], None]
    ) -> Callable[[], None]:
        """Answers with a result within this time, or None. Returns the call that ends the wait unanswered."""

        def look() -> bool:
            found = find()
            if found is None:
                return False
            end()
            answer(found)
            return True

        def time_over() -> None:
            if waiter in self._waiters:
                end()
                answer(None)

        def end() -> None:
            self._waiters.pop(waiter, None)
            timer.cancel()

        waiter = _Waiter(look)
        timer = self._bus.later(seconds, time_over)
        self._waiters[waiter] = None
        look()
        return end

    def _changed(self) -> None:
        for waiter in list(self._waiters):
            if waiter in self._waiters:
                waiter.look()

    # -- sessions

    def next_session(self) -> Lock | None:
        """Locks the session with messages and no holder that was released longest ago."""
        for session in self._sessions.values():
            if session.lock is None and session.ready is not None:
                session.lock = Lock(session, self._bus.now() + self._bus.rules.lock_seconds)
                self._watch(session.lock)
                return session.lock
        return None

    def renew(self, lock: Lock) -> float:
        """Renews the lock and returns its new end. Raises SessionLockLostError."""
        self._check(lock)
        lock.until = self._bus.now() + self._bus.rules.lock_seconds
        return lock.until

    def release(self, lock: Lock, *, counts: bool = False) -> None:
        """Frees the session; ``counts``: messages taken from it and not settled count as delivered."""
        session = lock.session
        if session.lock is not lock:
            return
        session.lock = None
        del self._sessions[session.id]
        if session.messages:
            self._sessions[session.id] = session
        for held in [each for each in session.messages.values() if each.lock is not None]:
            self._give_back(held, counts=counts)
        self._changed()

    def take(self, lock: Lock) -> Queued | None:
        """Returns the session's next message. Raises SessionLockLostError."""
        self._check(lock)
        held = lock.session.ready
        if held is not None:
            held.lock = lock
            self._bus.note("bus gives", held.taken.sent.aggregate, held.taken.sent.message.id)
        return held

    def complete(self, lock: Lock, held: Queued, *, again: bool = False) -> None:
        """Completes it; ``again``: the broker forgets that. Raises SessionLockLostError."""
        self._check(lock)
        if again:
            self._give_back(held, counts=True)
        else:
            self.remove(held)
        self._bus.note("completed", held.taken.sent.aggregate, held.taken.sent.message.id)

    def abandon(self, lock: Lock, held: Queued) -> None:
        """Returns it to its place. Raises SessionLockLostError."""
        self._check(lock)
        self._give_back(held, counts=True)

    # -- dead letters

    def take_dead(self, most: int) -> Sequence[Queued] | None:
        """Returns up to this many dead letters, locked; None: there is none without a holder."""
        found = [held for held in self.dead.values() if held.lock is None][:most]
        for held in found:
            held.lock = lock = object()
            self._bus.later(self._bus.rules.lock_seconds, partial(self.free_dead, held, lock))
        return found or None

    def free_dead(self, held: Queued, lock: object) -> None:
        """Unlocks it: its lock has run out, or its receiver is closed."""
        if held.lock is lock:
            held.lock = None
            self._changed()

    def complete_dead(self, held: Queued, lock: object) -> None:
        """Completes it. Raises MessageLockLostError."""
        if held.lock is not lock:
            raise MessageLockLostError
        self.dead.pop(held.taken.number, None)

    # -- helpers

    def _check(self, lock: Lock) -> None:
        if lock.session.lock is not lock:
            raise SessionLockLostError

    def _watch(self, lock: Lock) -> None:
        def due() -> None:
            if lock.session.lock is not lock:
                return
            if lock.until > self._bus.now():
                self._watch(lock)
            else:
                self._bus.note("lock over", lock.session.id)
                self.release(lock, counts=True)

        self._bus.later(max(0.0, lock.until - self._bus.now()), due)

    def _give_back(self, held: Queued, *, counts: bool) -> None:
        held.lock = None
        held.deliveries += counts
        if held.deliveries >= self._bus.rules.max_deliveries:
            held.reason = MAX_DELIVERIES
            self.remove(held)
            self.dead[held.taken.number] = held
            self._bus.note("dead letter", held.taken.sent.aggregate, held.taken.sent.message.id)
        self._changed()
