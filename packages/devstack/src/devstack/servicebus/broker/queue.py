"""A queue loses no message and gives none to two readers at once; what it holds, it gives in sequence order.

Queues, subscriptions and dead-letter queues are all this. Every change is journaled in the call that makes it.
"""

import itertools
import secrets
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from devstack.servicebus.broker.deadlines import Deadlines
from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.journal import Journal
from devstack.servicebus.broker.message import Message, Origin, State
from devstack.servicebus.broker.sessions import Session, Sessions
from devstack.servicebus.broker.table import MessageTable
from devstack.servicebus.codec.errors import (
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    SESSION_LOCK_LOST,
    AmqpError,
)
from devstack.servicebus.codec.message import ParsedMessage, parse, with_application_properties

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"

_TOKEN_PREFIX = secrets.token_bytes(8)
_token_numbers = itertools.count(1)


class Settlement(Enum):
    """How a reader ends its hold on a message."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"


class Queue:
    """The messages of one queue or subscription (``dead`` false), or of its dead-letter queue."""

    def __init__(
        self, entity: int, description: Description, journal: Journal, *, dead: bool = False
    ) -> None:
        self.entity = entity
        self.description = description
        self.journal = journal
        self.next_sequence = 1
        self.locks: dict[bytes, Message] = {}
        self.on_available: Callable[[], None] = lambda: None
        """Called when a message or a session may be taken that could not be before."""

        self.on_due: Callable[[ParsedMessage, int], None] = self._put_due
        """Takes a scheduled message whose time has come."""

        self.on_forward: Callable[[Queue, Message, int], None] = lambda _queue, _message, _now_ms: None
        """Takes a message that has become active in a queue that forwards, and moves it on or dead-letters it."""

        self.dead_letter: Queue | None = None if dead else Queue(entity, description, journal, dead=True)
        self._dead = dead
        self._table = MessageTable()
        self._lock_deadlines: Deadlines[bytes] = Deadlines(self._lock_deadline)

    @property
    def sessions(self) -> Sessions:
        return self._table.sessions

    @property
    def requires_session(self) -> bool:
        return self.description.requires_session and not self._dead

    @property
    def forward_to(self) -> str | None:
        """Where its messages go on to, as the description says it."""
        return self.description.forward_dead_letters_to if self._dead else self.description.forward_to

    @property
    def size(self) -> int:
        """Bytes of the messages as they were sent."""
        return self._table.bytes

    @property
    def message_count(self) -> int:
        return len(self._table)

    @property
    def scheduled_count(self) -> int:
        return self._table.scheduled

    @property
    def active_count(self) -> int:
        """Messages that are not scheduled; locked and deferred ones are among them."""
        return len(self._table) - self._table.scheduled

    # -- in

    def put(self, parsed: ParsedMessage, now_ms: int, origin: Origin | None = None) -> Message:
        """Append a message, with the next sequence number."""
        message = self._new(parsed, now_ms, origin)
        ttl = _shorter(parsed.ttl_ms, self.description.default_ttl_ms)
        message.expires_ms = None if ttl is None else now_ms + ttl
        self.journal.put(self.entity, message)
        self.restore(message)
        self._forward(message, now_ms)
        return message

    def schedule(self, parsed: ParsedMessage, due_ms: int, now_ms: int) -> Message:
        """Store a message that becomes active, under a new sequence number, when it is due."""
        message = self._new(parsed, now_ms, None)
        message.state, message.due_ms = State.SCHEDULED, due_ms
        self.journal.put(self.entity, message)
        self.restore(message)
        return message

    def restore(self, message: Message) -> None:
        """Take a stored message into the queue as it is."""
        self.next_sequence = max(self.next_sequence, message.sequence + 1)
        self._table.insert(message, in_session=self._in_session(message))
        if message.state is State.ACTIVE:
            self._make_ready(message)

    def forward_ready(self, now_ms: int) -> None:
        """The queue forwards from now on: what waits in it goes first."""
        for message in list(self._table.starting_at(0)):
            if message.state is State.ACTIVE and message.token is None:
                self._forward(message, now_ms)

    def cancel(self, sequence: int) -> None:
        """Forget a scheduled message. Raises :class:`AmqpError` (message not found)."""
        message = self._table.by_sequence.get(sequence)
        if message is None or message.state is not State.SCHEDULED:
            raise AmqpError(MESSAGE_NOT_FOUND, f"No scheduled message has the sequence number {sequence}.")
        self._remove(message)

    # -- out

    def take(self, now_ms: int, session: Session | None = None) -> Message | None:
        """Lock and return the next message, of ``session`` when the queue has sessions; None when there is none."""
        message = self._table.take_ready(session)
        if message is not None:
            self._lock(message, now_ms)
        return message

    def take_and_delete(self, session: Session | None = None) -> Message | None:
        """Remove and return the next message."""
        message = self._table.take_ready(session)
        if message is not None:
            self._remove(message)
        return message

    def take_deferred(
        self, sequences: list[int], now_ms: int, session_id: str | None = None
    ) -> list[Message]:
        """Lock the deferred messages with these numbers, all or none. Raises :class:`AmqpError` (not found)."""
        found = [self._table.by_sequence.get(sequence) for sequence in dict.fromkeys(sequences)]
        messages = [m for m in found if m is not None and m.state is State.DEFERRED and m.token is None]
        if len(messages) != len(sequences) or any(
            self.requires_session and m.session_id != session_id for m in messages
        ):
            raise AmqpError(
                MESSAGE_NOT_FOUND, "No deferred message has one of the sequence numbers asked for."
            )
        for message in messages:
            self._lock(message, now_ms)
        return messages

    def forwarded(self, message: Message) -> None:
        """Remove a message that another entity has now."""
        self._remove(message)

    def delete_taken(self, message: Message) -> None:
        """Remove a message that was taken to be deleted on receipt."""
        self._unlock(message)
        self._remove(message)

    def browse(self, first: int, session_id: str | None = None) -> Iterator[Message]:
        """Stored messages of any state from a sequence number on, without locking them."""
        messages = self._table.starting_at(first)
        return messages if session_id is None else (m for m in messages if m.session_id == session_id)

    # -- settlement and locks

    def settle(
        self, token: bytes, how: Settlement, now_ms: int, changes: dict[str, Any] | None = None
    ) -> None:
        """End the hold that ``token`` proves; ``changes`` are merged into the application properties.

        Raises :class:`AmqpError` (message or session lock lost) when the token proves none.
        """
        message = self._locked(token)
        self._unlock(message)
        if how is Settlement.COMPLETE:
            self._remove(message)
            return
        if changes:
            self._change(message, changes)
            self.journal.put(self.entity, message)
        if how is Settlement.DEAD_LETTER:
            self._to_dead_letter(message, now_ms)
        elif how is Settlement.DEFER:
            message.state = State.DEFERRED
            message.delivery_count += 1
            self.journal.put(self.entity, message)
            self._expire_if_over(message, now_ms)
        else:
            self._give_back(message, now_ms, counts=how is Settlement.ABANDON)

    def renew(self, tokens: list[bytes], now_ms: int) -> list[int]:
        """Extend the locks, all or none. Returns until when each is held. Raises :class:`AmqpError` (lock lost)."""
        messages = [self._locked(token) for token in tokens]
        for message in messages:
            message.locked_until_ms = now_ms + self.description.lock_ms
        return [message.locked_until_ms for message in messages]

    def close_session(self, session: Session, now_ms: int) -> None:
        """The holder lets go: what it had not settled is free again and does not count as delivered."""
        self._end_session(session, now_ms, counts=False)

    def set_session_state(self, session: Session, state: bytes | None, now_ms: int) -> None:
        """Set the state that a session keeps for its readers; None clears it."""
        session.state, session.state_updated_ms = state, now_ms
        self.journal.session_state(self.entity, session.id, state, now_ms)

    def dead_letter_now(self, message: Message, reason: str, description: str, now_ms: int) -> None:
        """Move an unlocked message to the dead-letter queue."""
        self._change(message, {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description})
        self._to_dead_letter(message, now_ms)

    # -- time

    def next_deadline(self) -> int | None:
        """A time before which :meth:`advance` has nothing to do."""
        parts = (self._lock_deadlines, self._table.expiries, self._table.due, self.sessions.deadlines)
        return min((when for part in parts if (when := part.next()) is not None), default=None)

    def advance(self, now_ms: int) -> None:
        """Do what has come due: end locks, expire messages, activate scheduled ones."""
        for session_id in self.sessions.deadlines.take_due(now_ms):
            session = self.sessions.get(session_id)
            if session is not None and session.lock is not None:
                lost = session.lock.lost
                self._end_session(session, now_ms, counts=True)
                lost()
        for token in self._lock_deadlines.take_due(now_ms):
            message = self.locks[token]
            self._unlock(message)
            self._give_back(message, now_ms, counts=True)
        for sequence in self._table.expiries.take_due(now_ms):
            self._expire_if_over(self._table.by_sequence[sequence], now_ms)
        for sequence in self._table.due.take_due(now_ms):
            message = self._table.by_sequence[sequence]
            self._remove(message)
            self.on_due(message.parsed, now_ms)

    # -- inside

    def _forward(self, message: Message, now_ms: int) -> None:
        if self.forward_to is not None:
            self.on_forward(self, message, now_ms)

    def _new(self, parsed: ParsedMessage, now_ms: int, origin: Origin | None) -> Message:
        sequence = self.next_sequence
        self.next_sequence += 1
        self.journal.sequence(self.entity, self.next_sequence)
        origin = origin or Origin(sequence)
        return Message(
            sequence, origin.sequence, parsed, now_ms, dead_letter_source=origin.dead_letter_source
        )

    def _put_due(self, parsed: ParsedMessage, now_ms: int) -> None:
        self.put(parsed, now_ms)

    def _in_session(self, message: Message) -> bool:
        return self.requires_session and message.session_id is not None

    def _session(self, message: Message) -> Session | None:
        return self._table.session_of(message) if self._in_session(message) else None

    def _make_ready(self, message: Message) -> None:
        self._table.make_ready(message, self._session(message))
        self.on_available()

    def _lock(self, message: Message, now_ms: int) -> None:
        message.token = token = _TOKEN_PREFIX + next(_token_numbers).to_bytes(8, "big")
        self.locks[token] = message
        session = self._session(message)
        if session is not None and session.lock is not None:
            session.lock.tokens.add(token)
            message.locked_until_ms = session.lock.until_ms
            return
        message.locked_until_ms = now_ms + self.description.lock_ms
        self._lock_deadlines.add(message.locked_until_ms, token)

    def _locked(self, token: bytes) -> Message:
        message = self.locks.get(token)
        if message is None:
            condition, what = (
                (SESSION_LOCK_LOST, "session") if self.requires_session else (MESSAGE_LOCK_LOST, "message")
            )
            raise AmqpError(condition, f"The {what} lock has expired, or the message was settled or removed.")
        return message

    def _unlock(self, message: Message) -> None:
        assert message.token is not None
        self.locks.pop(message.token)
        session = self._session(message)
        if session is not None and session.lock is not None:
            session.lock.tokens.discard(message.token)
        message.token = None

    def _give_back(self, message: Message, now_ms: int, *, counts: bool) -> None:
        """An unlocked message returns to its place, or goes where its delivery count or its age sends it."""
        if counts:
            message.delivery_count += 1
            self.journal.put(self.entity, message)
            if message.delivery_count >= self.description.max_delivery_count and not self._dead:
                text = f"Message could not be consumed after {message.delivery_count} delivery attempts."
                self.dead_letter_now(message, "MaxDeliveryCountExceeded", text, now_ms)
                return
        if not self._expire_if_over(message, now_ms) and message.state is State.ACTIVE:
            self._make_ready(message)
            self._forward(message, now_ms)

    def _end_session(self, session: Session, now_ms: int, *, counts: bool) -> None:
        lock = session.lock
        assert lock is not None
        tokens, lock.tokens = lock.tokens, set()
        self.sessions.release(lock)
        for token in sorted(tokens):
            message = self.locks.pop(token)
            message.token = None
            self._give_back(message, now_ms, counts=counts)
        self.on_available()

    def _expire_if_over(self, message: Message, now_ms: int) -> bool:
        if message.token is not None or message.expires_ms is None or message.expires_ms > now_ms:
            return False
        if self.description.dead_letter_on_expiration:
            text = "The message expired and was dead lettered."
            self.dead_letter_now(message, "TTLExpiredException", text, now_ms)
        else:
            self._remove(message)
        return True

    def _to_dead_letter(self, message: Message, now_ms: int) -> None:
        target = self.dead_letter
        if target is None:  # already there: it goes back to its place
            self._give_back(message, now_ms, counts=True)
            return
        self._table.remove(message, in_session=self._in_session(message))
        message.dead, message.state, message.expires_ms = True, State.ACTIVE, None
        self.journal.put(self.entity, message)
        target.restore(message)
        target._forward(message, now_ms)  # noqa: SLF001 - the other half of this queue

    def _change(self, message: Message, changes: dict[str, Any]) -> None:
        before = message.size
        message.parsed = parse(with_application_properties(message.parsed, changes))
        self._table.bytes += message.size - before

    def _remove(self, message: Message) -> None:
        self._table.remove(message, in_session=self._in_session(message))
        self.journal.remove(self.entity, message.sequence)

    def _lock_deadline(self, token: bytes) -> int | None:
        message = self.locks.get(token)
        return None if message is None else message.locked_until_ms


def _shorter(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else min(first, second)
