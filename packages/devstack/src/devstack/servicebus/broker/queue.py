"""A queue loses no message and gives none to two readers at once; what it holds, it gives in sequence order.

Queues, subscriptions and dead-letter queues are all this. Every change is journaled in the call that makes it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.journal import Journal
from devstack.servicebus.broker.locks import Locks, Tokens
from devstack.servicebus.broker.message import Message, Origin, State, arrived, expiry
from devstack.servicebus.broker.onlooker import NOBODY
from devstack.servicebus.broker.sessions import Session, SessionLock, Sessions
from devstack.servicebus.broker.settlement import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, Settlement
from devstack.servicebus.broker.table import MessageTable
from devstack.servicebus.codec.errors import MESSAGE_NOT_FOUND, AmqpError
from devstack.servicebus.codec.message import ParsedMessage


class Queue:
    """The messages of one queue or subscription (``dead`` false), or of its dead-letter queue."""

    def __init__(
        self, entity: int, description: Description, journal: Journal, tokens: Tokens, *, dead: bool = False
    ) -> None:
        self.entity = entity
        self.description = description
        self.requires_session = description.requires_session and not dead
        self.locks = Locks(tokens, sessions=self.requires_session)
        self.on_available: Callable[[], None] = lambda: None
        """Called when a message or a session may be taken that could not be before."""

        self.on_due: Callable[[ParsedMessage, int], object] = self.put
        """Takes a scheduled message whose time has come."""

        self.on_forward: Callable[[Queue, Message, int], None] = lambda _queue, _message, _now_ms: None
        """Takes a message that has become active in a queue that forwards, and moves it on or dead-letters it."""

        self.onlooker = NOBODY
        self.dead_letter: Queue | None = (
            None if dead else Queue(entity, description, journal, tokens, dead=True)
        )
        self._dead = dead
        self._table = MessageTable(entity, journal, has_sessions=self.requires_session)

    @property
    def sessions(self) -> Sessions:
        return self._table.sessions

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

    @property
    def next_sequence(self) -> int:
        """The number that the next message will get."""
        return self._table.next_sequence

    # -- in

    def put(self, parsed: ParsedMessage, now_ms: int, origin: Origin | None = None) -> Message:
        """Append a message, with the next sequence number."""
        message = arrived(self._table.new_sequence(), parsed, now_ms, origin)
        message.expires_ms = expiry(
            now_ms, parsed.ttl_ms, self.description.default_ttl_ms, origin.topic_ttl_ms if origin else None
        )
        self._table.store(message)
        self.restore(message)
        self._forward(message, now_ms)
        return message

    def schedule(self, parsed: ParsedMessage, due_ms: int, now_ms: int) -> Message:
        """Store a message that becomes active, under a new sequence number, when it is due."""
        message = arrived(self._table.new_sequence(), parsed, now_ms)
        message.state, message.due_ms = State.SCHEDULED, due_ms
        self._table.store(message)
        self.restore(message)
        return message

    def new_sequence(self) -> int:
        """Give away the next sequence number."""
        return self._table.new_sequence()

    def restore_sequence(self, following: int) -> None:
        """No number below ``following`` is given again."""
        self._table.next_sequence = following

    def restore(self, message: Message) -> None:
        """Take a stored message into the queue as it is."""
        self._table.insert(message)
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
        self._table.remove(message)

    # -- out

    def take(self, now_ms: int, session: Session | None = None) -> Message | None:
        """Lock and return the next message, of ``session`` when the queue has sessions; None when there is none."""
        message = self._table.take_ready(session)
        if message is not None:
            self._lock(message, now_ms)
            self.onlooker.given(self.description.path, message)
        return message

    def take_and_delete(self, session: Session | None = None) -> Message | None:
        """Remove and return the next message."""
        message = self._table.take_ready(session)
        if message is not None:
            self._table.remove(message)
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
        self._table.remove(message)

    def delete_taken(self, message: Message) -> None:
        """Remove a message that was taken to be deleted on receipt."""
        self._unlock(message)
        self._table.remove(message)

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
        message = self.locks.held(token)
        self._unlock(message)
        if how is Settlement.COMPLETE:
            self._table.remove(message)
            self.onlooker.completed(self.description.path, message)
            return
        if changes:
            self._table.set_properties(message, changes)
            self._table.store(message)
        if how is Settlement.DEAD_LETTER:
            self._to_dead_letter(message, now_ms)
        elif how is Settlement.DEFER:
            message.state = State.DEFERRED
            message.delivery_count += 1
            self._table.store(message)
            self._expire_if_over(message, now_ms)
        else:
            self._give_back(message, now_ms, counts=how is Settlement.ABANDON)

    def close_session(self, session: Session, now_ms: int) -> None:
        """The holder lets go: what it had not settled is free again and does not count as delivered."""
        self._end_session(session, now_ms, counts=False)

    def lose_session(self, session: Session, now_ms: int) -> None:
        """The holder is notified that it is one no longer: what it had not settled counts as delivered."""
        assert session.lock is not None
        lost = session.lock.lost
        self._end_session(session, now_ms, counts=True)
        self.onlooker.lock_over(self.description.path, session.id)
        lost()

    def free(self, message_id: str) -> Message | None:
        """The message with this id, if nobody has it."""
        found = (
            each for each in self.browse(0) if each.parsed.message_id == message_id and each.token is None
        )
        return next(found, None)

    def dead_letter_now(self, message: Message, reason: str, description: str, now_ms: int) -> None:
        """Move an unlocked message to the dead-letter queue."""
        self._table.set_properties(
            message, {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description}
        )
        self._to_dead_letter(message, now_ms)

    # -- time

    def next_deadline(self) -> int | None:
        """A time before which :meth:`advance` has nothing to do."""
        table = self._table
        parts = (
            self.locks.next_deadline(),
            table.expiries.next(),
            table.due.next(),
            self.sessions.deadlines.next(),
        )
        return min((when for when in parts if when is not None), default=None)

    def advance(self, now_ms: int) -> None:
        """Do what has come due: end locks, expire messages, activate scheduled ones."""
        for session_id in self.sessions.deadlines.take_due(now_ms):
            session = self.sessions.get(session_id)
            if session is not None and session.lock is not None:
                self.lose_session(session, now_ms)
        for message in self.locks.expired(now_ms):
            self._unlock(message)
            self._give_back(message, now_ms, counts=True)
        for sequence in self._table.expiries.take_due(now_ms):
            self._expire_if_over(self._table.by_sequence[sequence], now_ms)
        for sequence in self._table.due.take_due(now_ms):
            message = self._table.by_sequence[sequence]
            self._table.remove(message)
            self.on_due(message.parsed, now_ms)

    # -- inside

    def _forward(self, message: Message, now_ms: int) -> None:
        if self.forward_to is not None:
            self.on_forward(self, message, now_ms)

    def _make_ready(self, message: Message) -> None:
        self._table.make_ready(message)
        self.on_available()

    def _holder(self, message: Message) -> SessionLock | None:
        """The lock on the message's session; None when it has no session, or nobody holds it."""
        session = self._table.session_of(message)
        return None if session is None else session.lock

    def _lock(self, message: Message, now_ms: int) -> None:
        self.locks.lock(message, self._holder(message), now_ms, self.description.lock_ms)

    def _unlock(self, message: Message) -> None:
        self.locks.unlock(message, self._holder(message))

    def _give_back(self, message: Message, now_ms: int, *, counts: bool) -> None:
        """An unlocked message returns to its place, or goes where its delivery count or its age sends it."""
        if counts:
            message.delivery_count += 1
            self._table.store(message)
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
        messages = self.locks.unlock_all(lock)
        self.sessions.release(lock)
        for message in messages:
            self._give_back(message, now_ms, counts=counts)
        self.on_available()

    def _expire_if_over(self, message: Message, now_ms: int) -> bool:
        if message.token is not None or message.expires_ms is None or message.expires_ms > now_ms:
            return False
        if self.description.dead_letter_on_expiration:
            text = "The message expired and was dead lettered."
            self.dead_letter_now(message, "TTLExpiredException", text, now_ms)
        else:
            self._table.remove(message)
        return True

    def _to_dead_letter(self, message: Message, now_ms: int) -> None:
        target = self.dead_letter
        if target is None:  # already there: it goes back to its place
            self._give_back(message, now_ms, counts=True)
            return
        self._table.take_out(message)
        message.dead, message.state, message.expires_ms = True, State.ACTIVE, None
        self._table.store(message)
        self.onlooker.buried(self.description.path, message)
        target.restore(message)
        target._forward(message, now_ms)  # noqa: SLF001 - the other half of this queue
