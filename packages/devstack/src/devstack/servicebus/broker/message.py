"""One stored message. Its place in its queue is its sequence number; it is locked exactly while it has a token."""

from dataclasses import dataclass
from enum import IntEnum

from devstack.servicebus.codec.message import ParsedMessage


class State(IntEnum):
    """As ``x-opt-message-state`` says it."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was before it came to a queue: in a topic, or in an entity that forwards."""

    sequence: int
    """The number that it got where it was sent to."""

    dead_letter_source: str | None = None
    """The entity in whose dead-letter queue it was, if it was forwarded from one."""

    topic_ttl_ms: int | None = None
    """How long its topic lets it live."""


@dataclass(slots=True)
class Message:
    """Times are milliseconds since the epoch."""

    sequence: int
    enqueued_sequence: int
    """The number that the entity gave to which it was sent: of a subscription's message, the topic's."""

    parsed: ParsedMessage
    enqueued_ms: int
    expires_ms: int | None = None
    due_ms: int | None = None
    """When a scheduled message becomes active."""

    state: State = State.ACTIVE
    delivery_count: int = 0
    """Deliveries that ended without settlement, as the AMQP header counts them: 0 on the first one."""

    dead: bool = False
    """In the dead-letter queue of its entity."""

    dead_letter_source: str | None = None
    """The entity that dead-lettered it, known as in Azure only once the dead letter was forwarded."""

    token: bytes | None = None
    locked_until_ms: int = 0

    @property
    def session_id(self) -> str | None:
        return self.parsed.session_id

    @property
    def size(self) -> int:
        return len(self.parsed.raw)


def arrived(sequence: int, parsed: ParsedMessage, now_ms: int, origin: Origin | None = None) -> Message:
    """A message that was sent or forwarded to a queue just now."""
    origin = origin or Origin(sequence)
    return Message(sequence, origin.sequence, parsed, now_ms, dead_letter_source=origin.dead_letter_source)


def expiry(now_ms: int, *ttls_ms: int | None) -> int | None:
    """When a message expires: its sender and each entity may limit its life, and the shortest limit counts."""
    limits = [ttl for ttl in ttls_ms if ttl is not None]
    return now_ms + min(limits) if limits else None
