"""Counts, orders and the journal are kept in step with the messages: every message enters, changes and leaves here.

Nothing in here decides; the queue does.
"""

from collections.abc import Iterator
from typing import Any

from devstack.servicebus.broker.deadlines import Deadlines
from devstack.servicebus.broker.journal import Journal
from devstack.servicebus.broker.message import Message, State
from devstack.servicebus.broker.ready import Ready, SequenceIndex
from devstack.servicebus.broker.sessions import Session, Sessions
from devstack.servicebus.codec.message import parse
from devstack.servicebus.codec.written_message import with_application_properties


class MessageTable:
    """The messages of one queue: by number, in order, by what is ready, by deadline."""

    def __init__(self, entity: int, journal: Journal, *, has_sessions: bool) -> None:
        self.by_sequence: dict[int, Message] = {}
        self.bytes = 0
        self.scheduled = 0
        self.next_sequence = 1
        self.sessions = Sessions(entity, journal, self._is_ready)
        self.expiries: Deadlines[int] = Deadlines(self._expiry)
        self.due: Deadlines[int] = Deadlines(self._due_time)
        self._entity = entity
        self._journal = journal
        self._has_sessions = has_sessions
        self._ready = Ready(self._is_ready)
        self._index = SequenceIndex(self.by_sequence.__contains__)

    def __len__(self) -> int:
        return len(self.by_sequence)

    # -- in, changed, out

    def new_sequence(self) -> int:
        """Give away the next sequence number."""
        sequence = self.next_sequence
        self.next_sequence += 1
        self._journal.sequence(self._entity, self.next_sequence)
        return sequence

    def insert(self, message: Message) -> None:
        """Take in a message that is stored; an active one is not ready before :meth:`make_ready`."""
        self.next_sequence = max(self.next_sequence, message.sequence + 1)
        self.by_sequence[message.sequence] = message
        self._index.add(message.sequence)
        self.bytes += message.size
        session = self.session_of(message)
        if session is not None:
            session.messages += 1
        if message.state is State.SCHEDULED:
            self.scheduled += 1
            self.due.add(message.due_ms or 0, message.sequence)
        elif message.expires_ms is not None:
            self.expiries.add(message.expires_ms, message.sequence)

    def store(self, message: Message) -> None:
        """Journal a new message, or what changed of one."""
        self._journal.put(self._entity, message)

    def set_properties(self, message: Message, changes: dict[str, Any]) -> None:
        """Merge ``changes`` into a message's application properties; :meth:`store` is the caller's to call."""
        before = message.size
        message.parsed = parse(with_application_properties(message.parsed, changes))
        self.bytes += message.size - before

    def take_out(self, message: Message) -> None:
        """Let go of a message that stays stored: another table has it next."""
        del self.by_sequence[message.sequence]
        self.bytes -= message.size
        if message.state is State.SCHEDULED:
            self.scheduled -= 1
        session = self.session_of(message)
        if session is not None:
            session.messages -= 1
            self.sessions.discard_if_idle(session)

    def remove(self, message: Message) -> None:
        """Forget a message."""
        self.take_out(message)
        self._journal.remove(self._entity, message.sequence)

    # -- order

    def session_of(self, message: Message) -> Session | None:
        """The session whose holder takes the message; None when anyone may."""
        if not self._has_sessions or message.session_id is None:
            return None
        return self.sessions.ensure(message.session_id)

    def make_ready(self, message: Message) -> None:
        """An active, unlocked message may be taken, by the holder of its session if it has one."""
        session = self.session_of(message)
        if session is None:
            self._ready.add(message.sequence)
        else:
            session.ready.add(message.sequence)
            self.sessions.offer(session)

    def take_ready(self, session: Session | None) -> Message | None:
        """The ready message with the smallest number; the caller locks or removes it."""
        sequence = (self._ready if session is None else session.ready).take()
        return None if sequence is None else self.by_sequence[sequence]

    def starting_at(self, sequence: int) -> Iterator[Message]:
        for number in self._index.starting_at(sequence):
            yield self.by_sequence[number]

    def _is_ready(self, sequence: int) -> bool:
        message = self.by_sequence.get(sequence)
        return message is not None and message.state is State.ACTIVE and message.token is None

    def _expiry(self, sequence: int) -> int | None:
        message = self.by_sequence.get(sequence)
        return None if message is None else message.expires_ms

    def _due_time(self, sequence: int) -> int | None:
        message = self.by_sequence.get(sequence)
        return None if message is None or message.state is not State.SCHEDULED else message.due_ms
