"""A topic keeps nothing that is due: a message goes to every matching subscription in the call that accepts it."""

from dataclasses import replace

from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.filters import Filters, MessageView
from devstack.servicebus.broker.journal import Journal
from devstack.servicebus.broker.locks import Tokens
from devstack.servicebus.broker.message import Origin
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.codec.message import ParsedMessage


class Subscription:
    """One subscription: its queue and the filters in front of it."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.filters = Filters(queue.description.rules)


class Topic:
    """Its own queue holds the scheduled messages only."""

    def __init__(self, entity: int, description: Description, journal: Journal, tokens: Tokens) -> None:
        self.entity = entity
        self.description = description
        self.subscriptions: dict[str, Subscription] = {}
        self.backlog = Queue(entity, description, journal, tokens)
        self.backlog.on_due = self._publish_due

    @property
    def size(self) -> int:
        """Bytes of the messages in the topic and its subscriptions."""
        stored = self.backlog.size
        for subscription in self.subscriptions.values():
            queue = subscription.queue
            stored += queue.size + (queue.dead_letter.size if queue.dead_letter else 0)
        return stored

    def put(self, parsed: ParsedMessage, now_ms: int, origin: Origin | None = None) -> int:
        """Copy the message to every subscription whose rules match. Returns the topic's number for it."""
        sequence = self.backlog.new_sequence()
        view = MessageView(parsed)
        origin = replace(origin or Origin(sequence), topic_ttl_ms=self.description.default_ttl_ms)
        for subscription in list(self.subscriptions.values()):
            for copy in subscription.filters.copies(view):
                _deliver(subscription.queue, copy, origin, now_ms)
        return sequence

    def _publish_due(self, parsed: ParsedMessage, now_ms: int) -> None:
        self.put(parsed, now_ms)


def _deliver(queue: Queue, parsed: ParsedMessage, origin: Origin, now_ms: int) -> None:
    """A session subscription cannot use a message without a session id, and its sender cannot know: dead letter."""
    message = queue.put(parsed, now_ms, origin)
    if queue.description.requires_session and parsed.session_id is None:
        queue.dead_letter_now(
            message,
            "Session id is null.",
            "Session enabled entity doesn't allow a message whose session identifier is null.",
            now_ms,
        )
