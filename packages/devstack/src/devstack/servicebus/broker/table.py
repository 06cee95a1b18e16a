"""Counts and orders are kept in step with the messages: every message that a queue holds enters and leaves here.

Nothing in here decides; the queue does.
"""

from collections.abc import Iterator

from devstack.servicebus.broker.deadlines import Deadlines
from devstack.servicebus.broker.message import Message, State
from devstack.servicebus.broker.ready import Ready, SequenceIndex
from devstack.servicebus.broker.sessions import Session, Sessions


class MessageTable:
    """The messages of one queue: by number, in order, by what is ready, by deadline."""

    def __init__(self) -> None:
        self.by_sequence: dict[int, Message] = {}
        self.bytes = 0
        self.scheduled = 0
        self.sessions = Sessions(self._is_ready)
        self.expiries: Deadlines[int] = Deadlines(self._expiry)
        self.due: Deadlines[int] = Deadlines(self._due_time)
        self._ready = Ready(self._is_ready)
        self._index = SequenceIndex(self.by_sequence.__contains__)

    def __len__(self) -> int:
        return len(self.by_sequence)

    def insert(self, message: Message, *, in_session: bool) -> None:
        """Take in a message; an active one is not ready before :meth:`make_ready`."""
        self.by_sequence[message.sequence] = message
        self._index.add(message.sequence)
        self.bytes += message.size
        if in_session:
            self.session_of(message).messages += 1
        if message.state is State.SCHEDULED:
            self.scheduled += 1
            self.due.add(message.due_ms or 0, message.sequence)
        elif message.expires_ms is not None:
            self.expiries.add(message.expires_ms, message.sequence)

    def remove(self, message: Message, *, in_session: bool) -> None:
        del self.by_sequence[message.sequence]
        self.bytes -= message.size
        if message.state is State.SCHEDULED:
            self.scheduled -= 1
        if in_session:
            session = self.session_of(message)
            session.messages -= 1
            self.sessions.discard_if_idle(session)

    def session_of(self, message: Message) -> Session:
        assert message.session_id is not None
        return self.sessions.ensure(message.session_id)

    def make_ready(self, message: Message, session: Session | None) -> None:
        """An active, unlocked message may be taken, by the holder of its session if it has one."""
        if session is None:
            self._ready.add(message.sequence)
        else:
            session.ready.add(message.sequence)
            self.sessions.offer(session)

    def has_ready(self, session: Session | None) -> bool:
        return bool(self._ready if session is None else session.ready)

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
