"""The broker against a model of itself that is too simple to be wrong: lists, one clock, no files."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from devstack.servicebus.broker.description import Description, default_rule
from devstack.servicebus.broker.entity import Entity
from devstack.servicebus.broker.message import Message
from devstack.servicebus.broker.namespace import Namespace
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.sessions import SessionLock
from devstack.servicebus.broker.settlement import Settlement
from devstack.servicebus.codec.errors import AmqpError
from devstack.servicebus.codec.message import parse
from devstack.testing.amqp import message

LOCK_MS = 30_000
WINDOW_MS = 60_000
MAX_DELIVERY_COUNT = 3
SESSIONS = ("a", "b", "c")


class MemoryJournal:
    """What would be on disk: rebuilt from the changes alone."""

    def __init__(self) -> None:
        self.stored: dict[tuple[int, int], bool] = {}

    def put(self, entity: int, message: Message) -> None:
        self.stored[entity, message.sequence] = message.dead

    def remove(self, entity: int, sequence: int) -> None:
        del self.stored[entity, sequence]

    def sequence(self, entity: int, following: int) -> None:
        """Not part of what this test looks at."""

    def seen(self, entity: int, key: str, at_ms: int) -> None:
        """Not part of what this test looks at."""

    def forget_seen(self, entity: int, before_ms: int) -> None:
        """Not part of what this test looks at."""

    def session_state(self, entity: int, session: str, state: bytes | None, at_ms: int) -> None:
        """Not part of what this test looks at."""


@dataclass
class Expected:
    """One message in the model."""

    name: str
    deliveries: int = 0


@dataclass
class Holder:
    """A reader that holds a session, as the model sees it."""

    lock: SessionLock
    until_ms: int
    taken: dict[bytes, Expected] = field(default_factory=dict)


class SessionQueueMachine(RuleBasedStateMachine):
    """A session subscription of a topic with duplicate detection, and readers that do as they please."""

    @initialize()
    def start(self) -> None:
        self.now = 1_000_000
        self.journal = MemoryJournal()
        self.namespace = Namespace(self.journal)
        self.topic = self.namespace.add(
            1,
            Description(
                path="t", kind="topic", requires_duplicate_detection=True, duplicate_window_ms=WINDOW_MS
            ),
        )
        self.subscription: Entity = self.namespace.add(
            2,
            Description(
                path="t/subscriptions/s",
                kind="subscription",
                requires_session=True,
                lock_ms=LOCK_MS,
                max_delivery_count=MAX_DELIVERY_COUNT,
                rules=(default_rule(),),
            ),
        )
        self.queue: Queue = self.subscription.queue
        self.waiting: dict[str, list[Expected]] = {session: [] for session in SESSIONS}
        self.accepted: dict[str, int] = {}
        self.holders: dict[str, Holder] = {}
        self.completed: set[str] = set()
        self.dead: list[str] = []

    # -- what the model knows

    def _order(self, session: str) -> None:
        self.waiting[session].sort(key=lambda expected: int(expected.name.split(":")[1]))

    def _back(self, session: str, expected: Expected, *, counts: bool) -> None:
        expected.deliveries += counts
        if expected.deliveries >= MAX_DELIVERY_COUNT:
            self.dead.append(expected.name)
            return
        self.waiting[session].append(expected)
        self._order(session)

    def _held(self, which: int) -> tuple[str, Holder]:
        return sorted(self.holders.items())[which % len(self.holders)]

    def _release(self, session: str, *, counts: bool) -> None:
        holder = self.holders.pop(session)
        for expected in holder.taken.values():
            self._back(session, expected, counts=counts)

    def _pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        for session in [s for s, holder in self.holders.items() if holder.until_ms <= self.now]:
            self._release(session, counts=True)
        self.namespace.watch(self.subscription)
        self.namespace.advance(self.now)

    # -- what may happen

    @rule(session=st.sampled_from(SESSIONS), number=st.integers(0, 12))
    def send(self, session: str, number: int) -> None:
        message_id = f"id-{number}"
        name = f"{message_id}@{len(self.accepted) + len(self.completed)}:{self.queue.next_sequence}"
        is_new = self.now - self.accepted.get(message_id, -WINDOW_MS) >= WINDOW_MS
        self.namespace.send(
            self.topic, [parse(message(name.encode(), message_id=message_id, session_id=session))], self.now
        )
        if is_new:
            self.accepted[message_id] = self.now
            self.waiting[session].append(Expected(name))

    @rule(session=st.sampled_from((*SESSIONS, None)))
    def accept(self, session: str | None) -> None:
        free = [s for s in SESSIONS if s not in self.holders and self.waiting[s]]
        if session in self.holders:
            with pytest.raises(AmqpError, match="session-cannot-be-locked"):
                self.queue.sessions.accept(session, self.now, LOCK_MS, lambda: None)
            return
        lock = self.queue.sessions.accept(session, self.now, LOCK_MS, lambda: None)
        if session is None and not free:
            assert lock is None
            return
        assert lock is not None
        assert lock.session.id in (free if session is None else [session])
        self.holders[lock.session.id] = Holder(lock, self.now + LOCK_MS)

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 2))
    def take(self, which: int) -> None:
        session, holder = self._held(which)
        taken = self.queue.take(self.now, holder.lock.session)
        if not self.waiting[session]:
            assert taken is None
            return
        expected = self.waiting[session].pop(0)
        assert taken is not None
        assert taken.token is not None
        assert taken.parsed.raw.endswith(expected.name.encode())
        assert taken.delivery_count == expected.deliveries
        holder.taken[taken.token] = expected

    @precondition(lambda self: any(holder.taken for holder in self.holders.values()))
    @rule(
        which=st.integers(0, 5),
        how=st.sampled_from(
            [Settlement.COMPLETE, Settlement.ABANDON, Settlement.RELEASE, Settlement.DEAD_LETTER]
        ),
    )
    def settle(self, which: int, how: Settlement) -> None:
        owned = [
            (session, token) for session, holder in sorted(self.holders.items()) for token in holder.taken
        ]
        session, token = owned[which % len(owned)]
        holder = self.holders[session]
        expected = holder.taken.pop(token)
        self.queue.settle(token, how, self.now)
        if how is Settlement.COMPLETE:
            self.completed.add(expected.name)
        elif how is Settlement.DEAD_LETTER:
            self.dead.append(expected.name)
        else:
            self._back(session, expected, counts=how is Settlement.ABANDON)
        with pytest.raises(AmqpError, match="lock-lost"):
            self.queue.settle(token, how, self.now)

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 2))
    def renew(self, which: int) -> None:
        session, holder = self._held(which)
        holder.until_ms = self.queue.sessions.renew(session, holder.lock, self.now, LOCK_MS)
        assert holder.until_ms == self.now + LOCK_MS

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 2))
    def close(self, which: int) -> None:
        session, holder = self._held(which)
        tokens = list(holder.taken)
        self.queue.close_session(holder.lock.session, self.now)
        self._release(session, counts=False)
        with pytest.raises(AmqpError, match="session-lock-lost"):
            self.queue.sessions.renew(session, holder.lock, self.now, LOCK_MS)
        for token in tokens:
            with pytest.raises(AmqpError, match="session-lock-lost"):
                self.queue.settle(token, Settlement.COMPLETE, self.now)

    @rule(milliseconds=st.sampled_from([1, 1000, 1000, LOCK_MS, WINDOW_MS]))
    def pass_time(self, milliseconds: int) -> None:
        self._pass_time(milliseconds)

    # -- what must always hold

    @invariant()
    def counts_add_up(self) -> None:
        taken = [expected for holder in self.holders.values() for expected in holder.taken.values()]
        waiting = sum(len(messages) for messages in self.waiting.values())
        assert self.queue.active_count == waiting + len(taken)
        assert self.queue.dead_letter is not None
        assert self.queue.dead_letter.message_count == len(self.dead)
        assert len(self.queue.locks) == len(taken)
        assert sum(self.journal.stored.values()) == len(self.dead)
        assert len(self.journal.stored) == waiting + len(taken) + len(self.dead)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        assert self.queue.dead_letter is not None
        stored = [m.parsed.raw.rpartition(b"id-")[2] for m in self.queue.browse(0)]
        stored += [m.parsed.raw.rpartition(b"id-")[2] for m in self.queue.dead_letter.browse(0)]
        known = [e.name for messages in self.waiting.values() for e in messages]
        known += [e.name for holder in self.holders.values() for e in holder.taken.values()]
        known += self.dead
        assert sorted(stored) == sorted(name.removeprefix("id-").encode() for name in known)

    @invariant()
    def at_most_one_holder(self) -> None:
        for session in SESSIONS:
            found = self.queue.sessions.get(session)
            held = self.holders.get(session)
            assert (found.lock if found is not None else None) is (held.lock if held is not None else None)


TestSessionQueue = SessionQueueMachine.TestCase
TestSessionQueue.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
