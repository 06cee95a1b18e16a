"""A receiver's link gets messages only with credit, and its settlements are answered only once they are stored.

How outcomes map to settlements is that of the AMQP protocol guide of Azure Service Bus: accepted completes, rejected
dead-letters, modified abandons, modified with undeliverable-here defers, released gives back. Abandoning counts as a
delivery whether ``delivery-failed`` is set (Python) or not (.NET and JavaScript); a release does not count.
"""

import functools

from devstack.servicebus.amqp.client import Client
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.link import OutgoingLink
from devstack.servicebus.amqp.session import AmqpSession, rejected
from devstack.servicebus.broker.message import Message
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.sessions import SessionLock
from devstack.servicebus.broker.settlement import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, Settlement
from devstack.servicebus.codec.errors import SESSION_LOCK_LOST, AmqpError
from devstack.servicebus.codec.performatives import Accepted, Modified, Outcome, Rejected, Released
from devstack.servicebus.delivery import payload

_NO_TAG = b""


class QueueSource:
    """Feeds one receiver from a queue, or from the session that it holds."""

    def __init__(
        self, client: Client, session: AmqpSession, engine: Engine, link: OutgoingLink, queue: Queue
    ) -> None:
        self.queue = queue
        self.lock: SessionLock | None = None
        self._client = client
        self._session = session
        self._engine = engine
        self._link = link
        engine.add_reader(queue, self)

    def hold(self, lock: SessionLock) -> None:
        """The receiver has a session of its own."""
        self.lock = lock
        lock.lost = self._session_lost

    def pump(self) -> None:
        """Send as many messages as there are and the credit allows."""
        if self._link.pre_settled:
            self._pump_deleted()
            return
        session = None if self.lock is None else self.lock.session
        if self.queue.requires_session and (self.lock is None or not self.lock.held):
            return
        sent = False
        while self._link.can_send:
            message = self.queue.take(self._engine.now(), session)
            if message is None:
                break
            assert message.token is not None
            sent = True
            self._link.send(message.token, payload(message, locked=True))
        if sent:
            self._engine.touch(self.queue)

    def _pump_deleted(self) -> None:
        """Receive and delete: a message is gone from the store before it is sent."""
        session = None if self.lock is None else self.lock.session
        if self.queue.requires_session and (self.lock is None or not self.lock.held):
            return
        messages: list[Message] = []
        while self._link.can_reserve:
            message = self.queue.take_and_delete(session)
            if message is None:
                break
            messages.append(message)
            self._link.reserved += 1
        if not messages:
            return
        for message in messages:
            self._engine.when_durable(functools.partial(self._send_deleted, message))
        self._engine.touch(self.queue)

    def _send_deleted(self, message: Message) -> None:
        self._link.reserved -= 1
        self._link.send(_NO_TAG, payload(message, locked=False))

    def settle(self, delivery_id: int, tag: bytes, outcome: Outcome | None, *, settled: bool) -> None:
        """Apply the client's outcome, and answer when it is stored."""
        answer: Outcome
        if outcome is None:
            if not settled:
                return
            outcome = Released()
        answer = outcome
        try:
            self._apply(tag, outcome)
        except AmqpError as error:
            answer = rejected(error)
        self._engine.touch(self.queue)
        if settled:
            return
        if isinstance(outcome, Rejected) and answer is outcome:
            answer = Rejected()
        channel = self._session.channel
        self._client.answer(lambda: channel.settle_outgoing(delivery_id, answer))

    def _apply(self, tag: bytes, outcome: Outcome) -> None:
        now = self._engine.now()
        if isinstance(outcome, Accepted):
            self.queue.settle(tag, Settlement.COMPLETE, now)
        elif isinstance(outcome, Rejected):
            self.queue.settle(tag, Settlement.DEAD_LETTER, now, _dead_letter_changes(outcome))
        elif isinstance(outcome, Modified):
            how = Settlement.DEFER if outcome.undeliverable_here else Settlement.ABANDON
            self.queue.settle(tag, how, now, _text_keys(outcome.message_annotations))
        else:
            self.queue.settle(tag, Settlement.RELEASE, now)

    def closed(self) -> None:
        """The link is gone: its session is free at once, its other locks run out by themselves."""
        self._engine.remove_reader(self.queue, self)
        if self.lock is not None and self.lock.held:
            self.queue.close_session(self.lock.session, self._engine.now())
            self._engine.touch(self.queue)

    def entity_gone(self, error: AmqpError) -> None:
        self._session.detach(self._link, error)

    def _session_lost(self) -> None:
        assert self.lock is not None
        error = AmqpError(
            SESSION_LOCK_LOST, f"The session lock has expired on session '{self.lock.session.id}'."
        )
        self._session.detach(self._link, error)


def _dead_letter_changes(outcome: Rejected) -> dict[str, object]:
    error = outcome.error
    if error is None:
        return {}
    changes = _text_keys(error.info)
    if error.condition != "com.microsoft:dead-letter":
        changes.setdefault(DEAD_LETTER_REASON, error.condition)
        changes.setdefault(DEAD_LETTER_DESCRIPTION, error.description)
    return {name: value for name, value in changes.items() if value is not None}


def _text_keys(changes: dict[object, object] | None) -> dict[str, object]:
    return {str(name): value for name, value in (changes or {}).items()}
