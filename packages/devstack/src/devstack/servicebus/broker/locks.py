"""A token proves one hold on one message while the hold lasts; one that was used, or has run out, proves nothing.

What the holder of a session took is held as long as the session is; any other message has a deadline of its own.
"""

import random

from devstack.servicebus.broker.deadlines import Deadlines
from devstack.servicebus.broker.message import Message
from devstack.servicebus.broker.sessions import SessionLock
from devstack.servicebus.codec.errors import MESSAGE_LOCK_LOST, SESSION_LOCK_LOST, AmqpError


class Tokens:
    """Tokens of one namespace: none is given twice, also by another process that has its data."""

    def __init__(self, chance: random.Random) -> None:
        self._prefix = chance.randbytes(8)
        self._given = 0

    def new(self) -> bytes:
        """A token, later ones being greater."""
        self._given += 1
        return self._prefix + self._given.to_bytes(8, "big")


class Locks:
    """The locked messages of one queue, by token. ``sessions`` says that only holders of sessions take them."""

    def __init__(self, tokens: Tokens, *, sessions: bool) -> None:
        self._tokens = tokens
        self._lost = (SESSION_LOCK_LOST, "session") if sessions else (MESSAGE_LOCK_LOST, "message")
        self._messages: dict[bytes, Message] = {}
        self._deadlines: Deadlines[bytes] = Deadlines(self._deadline)

    def __len__(self) -> int:
        return len(self._messages)

    def lock(self, message: Message, session: SessionLock | None, now_ms: int, lock_ms: int) -> None:
        """Hold the message for the holder of ``session``; without one, for ``lock_ms``."""
        message.token = token = self._tokens.new()
        self._messages[token] = message
        if session is not None:
            session.tokens.add(token)
            message.locked_until_ms = session.until_ms
            return
        message.locked_until_ms = now_ms + lock_ms
        self._deadlines.add(message.locked_until_ms, token)

    def held(self, token: bytes) -> Message:
        """The message that the token proves a hold on. Raises :class:`AmqpError` (message or session lock lost)."""
        message = self._messages.get(token)
        if message is None:
            condition, what = self._lost
            raise AmqpError(condition, f"The {what} lock has expired, or the message was settled or removed.")
        return message

    def unlock(self, message: Message, session: SessionLock | None) -> None:
        """End the hold on a message that was locked with ``session``."""
        assert message.token is not None
        del self._messages[message.token]
        if session is not None:
            session.tokens.discard(message.token)
        message.token = None

    def unlock_all(self, session: SessionLock) -> list[Message]:
        """End every hold of a session. Returns the messages, in the order in which they were taken."""
        messages = [self._messages[token] for token in sorted(session.tokens)]
        for message in messages:
            self.unlock(message, session)
        return messages

    def renew(self, tokens: list[bytes], now_ms: int, lock_ms: int) -> list[int]:
        """Extend the locks, all or none. Returns until when each is held. Raises :class:`AmqpError` (lock lost)."""
        messages = [self.held(token) for token in tokens]
        for message in messages:
            message.locked_until_ms = now_ms + lock_ms
        return [message.locked_until_ms for message in messages]

    def next_deadline(self) -> int | None:
        """A time before which :meth:`expired` is empty."""
        return self._deadlines.next()

    def expired(self, now_ms: int) -> list[Message]:
        """The messages whose own deadline is over, each named once; the caller unlocks them."""
        return [self._messages[token] for token in self._deadlines.take_due(now_ms)]

    def _deadline(self, token: bytes) -> int | None:
        message = self._messages.get(token)
        return None if message is None else message.locked_until_ms
