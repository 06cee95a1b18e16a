"""Packs a page's messages into batches, and tracks which may still be sent, and why the others may not.

An aggregate keeps the first reason that stopped it: later ones know less about what the topic has.

Batches form chains: the batches of one chain are sent one after another, different chains concurrently. No two
concurrent batches have the same aggregate, and an aggregate's messages keep their order. If possible, an aggregate is
in a single batch: split, its second batch would wait for the first. So aggregates are placed by size, the largest
first, each into the first batch with room for all of it; one that is too large for any batch gets its own chain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from azure.servicebus import ServiceBusMessage

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.publisher import Accepted, Outcome, Refused, Unknown
from cosmos_outbox.servicebus.errors import TOO_LARGE
from cosmos_outbox.servicebus.message import exact_size, is_encodable


@dataclass
class SendingAggregate:
    """The progress of one aggregate's events."""

    messages: list["SendingMessage"] = field(default_factory=list)
    impossible: str | None = None
    """The reason why the event after the last message can never be sent."""
    accepted: int = 0
    stopped: Refused | Unknown | None = None
    postponed: bool = False
    """The topic refused it together with others: it is sent alone once nothing of the page is in flight."""

    @property
    def unsent(self) -> list["SendingMessage"]:
        """The messages that may still be sent, in order."""
        return [] if self.stopped else self.messages[self.accepted :]

    @property
    def outcome(self) -> Outcome:
        """The outcome for the relay, once nothing more is sent."""
        if self.stopped is None and self.impossible is not None:
            return Refused(self.accepted, self.impossible, shown_by_event=True)
        return self.stopped or Accepted()


@dataclass(frozen=True, eq=False)
class SendingMessage:
    """An event's message, with its aggregate and its size."""

    aggregate: SendingAggregate
    message: ServiceBusMessage
    size: int


Batch = list[SendingMessage]
Chain = list[Batch]


@dataclass(frozen=True)
class Room:
    """The limits of one batch. A message larger than ``bytes`` is a batch of its own."""

    bytes: int
    messages: int
    mixes: bool
    """Whether a batch may contain messages of several aggregates."""


@dataclass
class _Open:
    """A batch that is being filled."""

    room: Room
    messages: Batch = field(default_factory=list)
    bytes: int = 0

    def has_room_for(self, messages: Sequence[SendingMessage]) -> bool:
        size = sum(message.size for message in messages)
        return (
            self.bytes + size <= self.room.bytes and len(self.messages) + len(messages) <= self.room.messages
        )

    def put(self, messages: Sequence[SendingMessage]) -> None:
        self.messages += messages
        self.bytes += sum(message.size for message in messages)


def pack(aggregates: Sequence[Sequence[SendingMessage]], room: Room) -> list[Chain]:
    """Packs every message of every aggregate into exactly one batch."""
    chains: list[list[_Open]] = []
    for messages in sorted(aggregates, key=_size, reverse=True):
        batches = _cut(messages, room)
        if room.mixes and len(batches) == 1 and (place := _first_with_room(chains, messages)):
            place.put(messages)
        elif batches:
            chains.append(batches)
    return [[batch.messages for batch in chain] for chain in chains]


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Splits a batch of at least two messages in two, to be sent one after the other."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]


def _size(messages: Sequence[SendingMessage]) -> int:
    return sum(message.size for message in messages)


def _cut(messages: Sequence[SendingMessage], room: Room) -> list[_Open]:
    """Splits one aggregate's messages into as few batches as their order allows."""
    batches: list[_Open] = []
    for message in messages:
        if not batches or not batches[-1].has_room_for([message]):
            batches.append(_Open(room))
        batches[-1].put([message])
    return batches


def _first_with_room(chains: Sequence[Sequence[_Open]], messages: Sequence[SendingMessage]) -> _Open | None:
    return next((batch for chain in chains for batch in chain if batch.has_room_for(messages)), None)


@dataclass
class SendingPage:
    """The aggregates of one call of ``publish``."""

    aggregates: list[SendingAggregate]
    until: float
    """The deadline by the monotonic clock: nothing is sent after it."""
    away: Unknown | None = None
    """The reason why nothing more of the page is tried."""

    @property
    def unsent(self) -> list[SendingMessage]:
        """The messages of all aggregates that may still be sent."""
        return [message for aggregate in self.aggregates for message in aggregate.unsent]

    def give_up(self, away: Unknown, messages: Iterable[SendingMessage]) -> None:
        """Stops the page: it is not known whether the topic has these messages, and no others are tried."""
        self.away = away
        for aggregate in (one.aggregate for one in messages):
            aggregate.stopped = aggregate.stopped or replace(away, accepted=aggregate.accepted)


def stop_at_too_large(aggregates: Iterable[SendingAggregate], limit: int) -> None:
    """Removes messages that exceed the link's limit before anything is sent: sending one would close the link."""
    for aggregate in aggregates:
        if (number := first_too_large(aggregate, limit)) is not None:
            aggregate.impossible = TOO_LARGE
            del aggregate.messages[number:]


def first_too_large(aggregate: SendingAggregate, limit: int) -> int | None:
    """Returns the index of the aggregate's first message above the limit."""
    sizes = enumerate(aggregate.messages)
    return next((n for n, one in sizes if one.size > limit and _exceeds(one.message, limit)), None)


def _exceeds(message: ServiceBusMessage, limit: int) -> bool:
    """Whether the message exceeds the limit; False if it cannot be encoded: its send reports that."""
    return is_encodable(message) and exact_size(message) > limit


def is_mixed(batch: Batch) -> bool:
    """Whether the batch has messages of several aggregates, and so of several sessions."""
    return len({id(one.aggregate) for one in batch}) > 1


def postpone(batch: Batch) -> None:
    """Postpones the batch and all later messages of its aggregates, which must not overtake it."""
    for one in batch:
        one.aggregate.postponed = True
