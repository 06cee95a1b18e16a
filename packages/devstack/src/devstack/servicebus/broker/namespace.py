"""The entities by path; all of a send is accepted, or none; what an entity forwards has one place at any time."""

import random

from devstack.servicebus.broker.admission import (
    check_batch,
    check_message,
    duplicate_key,
    identified,
    readable,
    scheduled_time,
)
from devstack.servicebus.broker.description import Description, entity_path
from devstack.servicebus.broker.duplicates import DuplicateWindow
from devstack.servicebus.broker.entity import Entity
from devstack.servicebus.broker.filters import Filters
from devstack.servicebus.broker.journal import Journal
from devstack.servicebus.broker.locks import Tokens
from devstack.servicebus.broker.message import Message, Origin
from devstack.servicebus.broker.onlooker import NOBODY
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.topic import Subscription, Topic
from devstack.servicebus.broker.wakeups import Wakeups
from devstack.servicebus.codec.errors import (
    ENTITY_ALREADY_EXISTS,
    ENTITY_DISABLED,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
)
from devstack.servicebus.codec.message import ParsedMessage

MAX_HOPS = 4
"""How often a message may be forwarded. Source: the documentation of autoforwarding in Azure Service Bus."""

DEAD_LETTER_SUFFIX = "/$deadletterqueue"
_MEGABYTE = 1024 * 1024


class Namespace:
    """All entities. Times are milliseconds since the epoch and never go back."""

    def __init__(self, journal: Journal, chance: random.Random | None = None) -> None:
        """``chance`` draws lock tokens and the ids of messages without one; None: the operating system does."""
        self._journal = journal
        self._chance = chance or random.SystemRandom()
        self._tokens = Tokens(self._chance)
        self._entities: dict[str, Entity] = {}
        self._by_id: dict[int, Entity] = {}
        self._wakeups = Wakeups(self._by_id)
        self.onlooker = NOBODY
        self._hops = 0
        """How often the message that is being forwarded was forwarded before: a chain is gone through in one turn."""

    # -- entities

    def entities(self) -> list[Entity]:
        return list(self._entities.values())

    def find(self, path: str) -> Entity | None:
        return self._entities.get(path.lower())

    def by_id(self, entity: int) -> Entity | None:
        return self._by_id.get(entity)

    def get(self, path: str) -> Entity:
        """Raises :class:`AmqpError` (not found)."""
        entity = self.find(path)
        if entity is None:
            raise AmqpError(NOT_FOUND, f"The messaging entity '{path}' could not be found.")
        return entity

    def add(self, entity_id: int, description: Description) -> Entity:
        """Raises :class:`AmqpError` when the path is taken or has no topic, ValueError for an unsupported rule."""
        key = description.path.lower()
        if key in self._entities:
            raise AmqpError(
                ENTITY_ALREADY_EXISTS, f"The messaging entity '{description.path}' already exists."
            )
        node: Queue | Topic
        if description.kind == "topic":
            node = Topic(entity_id, description, self._journal, self._tokens)
        else:
            node = Queue(entity_id, description, self._journal, self._tokens)
        if description.kind == "subscription":
            self._topic_of(description.path).subscriptions[key] = Subscription(_as_queue(node))
        if isinstance(node, Queue) and node.dead_letter is not None:
            node.on_forward = node.dead_letter.on_forward = self._forward
        window = (
            DuplicateWindow(description.duplicate_window_ms)
            if description.requires_duplicate_detection
            else None
        )
        entity = Entity(entity_id, description, node, window)
        self._entities[key] = entity
        self._by_id[entity_id] = entity
        return entity

    def update(self, description: Description) -> Entity:
        """Replace the description of an entity that exists; what cannot change is the caller's to keep."""
        entity = self.get(description.path)
        filters = Filters(description.rules)
        entity.description = entity.node.description = entity.queue.description = description
        if entity.queue.dead_letter is not None:
            entity.queue.dead_letter.description = description
        if entity.duplicates is not None:
            entity.duplicates.window_ms = description.duplicate_window_ms
        if description.kind == "subscription":
            self._topic_of(description.path).subscriptions[description.path.lower()].filters = filters
        for queue in (entity.queue, entity.queue.dead_letter):
            if queue is not None and queue.forward_to is not None:
                queue.forward_ready(description.updated_ms)
        return entity

    def delete(self, path: str) -> list[Entity]:
        """Remove an entity, a topic with its subscriptions. Returns what was removed."""
        key = path.lower()
        self.get(path)
        removed = [e for p, e in self._entities.items() if p == key or p.startswith(key + "/subscriptions/")]
        for entity in removed:
            del self._entities[entity.description.path.lower()]
            del self._by_id[entity.id]
        if removed[0].description.kind == "subscription":
            del self._topic_of(path).subscriptions[key]
        return removed

    def readable(self, path: str) -> Queue:
        """The queue behind a receiver's address. Raises :class:`AmqpError` when none may be read there."""
        lowered = path.lower()
        dead = lowered.endswith(DEAD_LETTER_SUFFIX)
        entity = self.get(path[: -len(DEAD_LETTER_SUFFIX)] if dead else path)
        if isinstance(entity.node, Topic):
            raise AmqpError(
                NOT_ALLOWED, f"'{path}' is a topic: messages are received from its subscriptions."
            )
        if not entity.description.can_receive:
            raise _disabled(path)
        queue = entity.node.dead_letter if dead else entity.node
        assert queue is not None
        return queue

    def receivable(self, path: str) -> Queue:
        """The queue that a receiver may take from. Raises :class:`AmqpError` when none may."""
        queue = self.readable(path)
        if queue.forward_to is not None:
            raise AmqpError(
                NOT_ALLOWED, f"A message receiver cannot be created on '{path}': it forwards its messages."
            )
        return queue

    def writable(self, path: str) -> Entity:
        """The entity behind a sender's address. Raises :class:`AmqpError`."""
        entity = self.get(path)
        if entity.description.kind == "subscription":
            raise AmqpError(NOT_ALLOWED, f"'{path}' is a subscription: messages are sent to its topic.")
        if not entity.description.can_send:
            raise _disabled(path)
        return entity

    # -- sending

    def send(
        self, entity: Entity, messages: list[ParsedMessage], now_ms: int, *, batch: bool = False
    ) -> list[int]:
        """Accept the messages, all or none. Returns the sequence numbers of those with a time of their own.

        A message without an id gets one, which is the same in every subscription.
        Raises :class:`AmqpError` with what the first message to be refused is refused for.
        """
        messages = [readable(each) for each in messages]
        self._check(entity, messages, batch=batch)
        numbers = []
        for parsed in (identified(each, self._chance) for each in messages):
            due = scheduled_time(parsed)
            number = self._accept(entity, parsed, due, now_ms)
            if due is not None:
                numbers.append(number)
        return numbers

    def _accept(
        self,
        entity: Entity,
        parsed: ParsedMessage,
        due_ms: int | None,
        now_ms: int,
        origin: Origin | None = None,
    ) -> int:
        """The number that the message got; of a duplicate, one that no message has."""
        if not self._is_fresh(entity, parsed, now_ms):
            self.onlooker.dropped(entity.description.path, parsed)
            return entity.queue.next_sequence
        if due_ms is not None and due_ms > now_ms:
            return entity.queue.schedule(parsed, due_ms, now_ms).sequence
        if isinstance(entity.node, Topic):
            number = entity.node.put(parsed, now_ms, origin)
            self.onlooker.accepted(entity.description.path, parsed, number)
            return number
        return entity.node.put(parsed, now_ms, origin).sequence

    def _forward(self, source: Queue, message: Message, now_ms: int) -> None:
        """Move a message to where its queue forwards, in the turn in which it came; what cannot go is a dead letter."""
        self._hops += 1
        try:
            target = self._forward_target(source, message)
        except AmqpError as error:
            if source.dead_letter is not None:
                source.dead_letter_now(message, error.condition, error.description, now_ms)
        else:
            source.forwarded(message)
            origin = Origin(message.enqueued_sequence, source.description.path if message.dead else None)
            self._accept(target, message.parsed, None, now_ms, origin)
            self.watch(target)
        finally:
            self._hops -= 1

    def _forward_target(self, source: Queue, message: Message) -> Entity:
        if self._hops > MAX_HOPS:
            raise AmqpError(NOT_ALLOWED, f"A message is forwarded at most {MAX_HOPS} times.")
        target = self.writable(entity_path(source.forward_to or ""))
        self._check(target, [message.parsed], batch=False)
        return target

    def _check(self, entity: Entity, messages: list[ParsedMessage], *, batch: bool) -> None:
        description = entity.description
        if not description.can_send:
            raise _disabled(description.path)
        if batch:
            check_batch(description, messages, detects_duplicates=entity.duplicates is not None)
        for parsed in messages:
            check_message(description, parsed)
            self.onlooker.check(description.path, parsed)
        size = sum(len(parsed.raw) for parsed in messages)
        stored = entity.node.size
        if isinstance(entity.node, Queue) and entity.node.dead_letter is not None:
            stored += entity.node.dead_letter.size
        if stored + size > description.max_size_megabytes * _MEGABYTE:
            raise AmqpError(
                RESOURCE_LIMIT_EXCEEDED,
                f"The maximum entity size has been reached or exceeded for '{description.path}'.",
            )

    def _is_fresh(self, entity: Entity, parsed: ParsedMessage, now_ms: int) -> bool:
        if entity.duplicates is None or parsed.message_id is None:
            return True
        key = duplicate_key(entity.description, parsed)
        if not entity.duplicates.accept(key, now_ms):
            return False
        self._journal.seen(entity.id, key, now_ms)
        return True

    # -- time

    def next_deadline(self) -> int | None:
        """A time before which :meth:`advance` has nothing to do."""
        return self._wakeups.next()

    def watch(self, entity: Entity) -> None:
        """Note the deadlines of an entity, and of a topic's subscriptions, after what may have set one."""
        self._wakeups.watch(entity)
        if isinstance(entity.node, Topic):
            for subscription in entity.node.subscriptions.values():
                self._wakeups.watch(self._by_id[subscription.queue.entity])

    def advance(self, now_ms: int) -> None:
        """Let every entity do what has come due."""
        for entity in self._wakeups.due(now_ms):
            entity.queue.advance(now_ms)
            if entity.queue.dead_letter is not None:
                entity.queue.dead_letter.advance(now_ms)
            self.watch(entity)

    def expire_duplicates(self, now_ms: int) -> None:
        """Forget message ids whose window is over, in memory and in the journal."""
        for entity in self._entities.values():
            if entity.duplicates is not None:
                self._journal.forget_seen(entity.id, entity.duplicates.expire(now_ms))

    def _topic_of(self, subscription_path: str) -> Topic:
        node = self.get(topic_path(subscription_path)).node
        if not isinstance(node, Topic):
            raise AmqpError(NOT_FOUND, f"The topic of '{subscription_path}' could not be found.")
        return node


def topic_path(subscription_path: str) -> str:
    """The topic's part of a subscription's path."""
    return subscription_path[: subscription_path.lower().rindex("/subscriptions/")]


def _as_queue(node: Queue | Topic) -> Queue:
    assert isinstance(node, Queue)
    return node


def _disabled(path: str) -> AmqpError:
    return AmqpError(ENTITY_DISABLED, f"The messaging entity '{path}' is disabled.")
