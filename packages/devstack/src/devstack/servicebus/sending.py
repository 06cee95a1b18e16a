"""A sender gets "accepted" for a message only once it is stored; a batch is accepted whole or refused whole."""

from devstack.servicebus.amqp.client import Client
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Faults, Traffic
from devstack.servicebus.amqp.session import AmqpSession, rejected
from devstack.servicebus.broker.entity import Entity
from devstack.servicebus.broker.topic import Topic
from devstack.servicebus.codec.errors import (
    DECODE_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    SERVER_BUSY,
    AmqpError,
)
from devstack.servicebus.codec.message import BATCH_FORMAT, ParsedMessage, parse, split_batch
from devstack.servicebus.codec.performatives import Accepted


class EntitySink:
    """Takes one sender's messages into a queue or topic."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a send meets
        self,
        client: Client,
        session: AmqpSession,
        engine: Engine,
        faults: Faults,
        traffic: Traffic,
        entity: Entity,
    ) -> None:
        self.max_message_bytes = entity.description.max_message_bytes
        self._client = client
        self._channel = session.channel
        self._engine = engine
        self._faults = faults
        self._traffic = traffic
        self._entity = entity

    def receive(self, delivery_id: int, message_format: int, payload: bytes, *, settled: bool) -> None:
        """Accept the delivery, or answer it with the reason why not."""
        client, channel = self._client, self._channel
        self._traffic.transfers += 1
        if self._faults.happens_to_send("fail-before-commit"):
            client.abort()
            return
        try:
            messages, batch = _messages(message_format, payload)
            self._traffic.messages += len(messages)
            if batch:
                self._check_batch(messages, len(payload))
            accept(self._engine, self._faults, self._entity, messages, batch=batch)
        except AmqpError as error:
            if error.condition == DECODE_ERROR:
                raise
            if not settled:
                refusal = rejected(error)
                client.answer(lambda: channel.settle_incoming(delivery_id, refusal))
            return
        if self._faults.happens_to_send("drop-after-commit"):
            self._engine.when_durable(client.abort)
        elif not settled:
            client.answer(lambda: channel.settle_incoming(delivery_id, Accepted()))

    def _check_batch(self, messages: list[ParsedMessage], size: int) -> None:
        limit = self._entity.description.max_batch_bytes
        if size > limit:
            raise AmqpError(MESSAGE_SIZE_EXCEEDED, f"A batch has at most {limit} bytes.")
        if len({parsed.session_id for parsed in messages}) > 1 and self._faults.happens("refuse-mixed"):
            raise AmqpError(
                NOT_ALLOWED, "Batching brokered messages with distinct SessionId is not supported."
            )

    def closed(self) -> None:
        """Nothing is held for a sender."""


def accept(
    engine: Engine, faults: Faults, entity: Entity, messages: list[ParsedMessage], *, batch: bool = False
) -> list[int]:
    """Put messages into an entity. Returns the sequence numbers of scheduled ones; raises :class:`AmqpError`."""
    now = engine.now()
    if faults.happens_to_send("throttle"):
        raise AmqpError(SERVER_BUSY, "The server is busy. Please wait 10 seconds and try again.")
    if faults.happens_to_send("full"):
        raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "The maximum entity size has been reached or exceeded.")
    current = engine.namespace.get(entity.description.path)
    scheduled = engine.namespace.send(current, messages, now, batch=batch)
    engine.touch(current.queue)
    if isinstance(current.node, Topic):
        for subscription in current.node.subscriptions.values():
            engine.touch(subscription.queue)
    return scheduled


def _messages(message_format: int, payload: bytes) -> tuple[list[ParsedMessage], bool]:
    if message_format == BATCH_FORMAT:
        return [parse(raw) for raw in split_batch(payload)], True
    if message_format != 0:
        raise AmqpError(NOT_IMPLEMENTED, f"The message format 0x{message_format:08x} is not supported.")
    return [parse(payload)], False
