"""How far a page has got: which of its messages may still be sent, and why no others are.

What has stopped an aggregate is the first that did: all that comes later knows less of what the topic has.

No two batches that may fly at once carry the same aggregate, and an aggregate's messages keep their order.

The batches of one chain fly one after the other, those of different chains side by side. An aggregate is whole in one
batch where that is possible: cut in two, its second batch would have to wait for the first. So the aggregates are
placed by size, the largest first, each into the first batch that has room for all of it; what is too large for any
batch makes a chain of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from azure.servicebus import ServiceBusMessage

from cosmos_outbox.outbox.publisher import Accepted, Outcome, Refused, Unknown
from cosmos_outbox.servicebus.errors import TOO_LARGE
from cosmos_outbox.servicebus.message import exact_size, is_encodable


class Sized(Protocol):
    """A message, of which only the size matters here."""

    @property
    def size(self) -> int:
        """The bytes that it takes in a batch."""


M = TypeVar("M", bound=Sized)

Batch = list[M]
Chain = list[Batch[M]]


@dataclass(frozen=True)
class Room:
    """What one batch may hold. A message that is larger than ``bytes`` makes a batch alone."""

    bytes: int
    messages: int
    mixes: bool
    """Whether one batch may hold messages of several aggregates."""


@dataclass
class _Open(Generic[M]):
    """A batch into which more may be put."""

    room: Room
    messages: Batch[M] = field(default_factory=list)
    bytes: int = 0

    def has_room_for(self, messages: Sequence[M]) -> bool:
        size = sum(message.size for message in messages)
        return (
            self.bytes + size <= self.room.bytes and len(self.messages) + len(messages) <= self.room.messages
        )

    def put(self, messages: Sequence[M]) -> None:
        self.messages += messages
        self.bytes += sum(message.size for message in messages)


def pack(aggregates: Sequence[Sequence[M]], room: Room) -> list[Chain[M]]:
    """Every message of every aggregate in exactly one batch."""
    chains: list[list[_Open[M]]] = []
    for messages in sorted(aggregates, key=_size, reverse=True):
        batches = _cut(messages, room)
        if room.mixes and len(batches) == 1 and (place := _first_with_room(chains, messages)):
            place.put(messages)
        elif batches:
            chains.append(batches)
    return [[batch.messages for batch in chain] for chain in chains]


def halves(batch: Batch[M]) -> tuple[Batch[M], Batch[M]]:
    """A batch of at least two messages in two, to be sent one after the other."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]


def _size(messages: Sequence[Sized]) -> int:
    return sum(message.size for message in messages)


def _cut(messages: Sequence[M], room: Room) -> list[_Open[M]]:
    """One aggregate's messages in as few batches as their order allows."""
    batches: list[_Open[M]] = []
    for message in messages:
        if not batches or not batches[-1].has_room_for([message]):
            batches.append(_Open(room))
        batches[-1].put([message])
    return batches


def _first_with_room(chains: Sequence[Sequence[_Open[M]]], messages: Sequence[M]) -> _Open[M] | None:
    return next((batch for chain in chains for batch in chain if batch.has_room_for(messages)), None)


@dataclass
class SendingAggregate:
    """How far one aggregate's events have got."""

    messages: list["SendingMessage"] = field(default_factory=list)
    impossible: str | None = None
    """Why the event behind the last message can never be sent."""
    accepted: int = 0
    stopped: Refused | Unknown | None = None
    postponed: bool = False
    """The topic refused to take it with others: it is sent by itself once nothing of the page is under way."""

    @property
    def unsent(self) -> list["SendingMessage"]:
        """What may still be sent, in its order."""
        return [] if self.stopped else self.messages[self.accepted :]

    @property
    def outcome(self) -> Outcome:
        """What the relay is told, once no more is sent."""
        if self.stopped is None and self.impossible is not None:
            return Refused(self.accepted, self.impossible, shown_by_event=True)
        return self.stopped or Accepted()


@dataclass(frozen=True, eq=False)
class SendingMessage:
    """An event as the topic gets it."""

    aggregate: SendingAggregate
    message: ServiceBusMessage
    size: int


@dataclass
class SendingPage:
    """The aggregates that are sent in one go."""

    aggregates: list[SendingAggregate]
    until: float
    """By the monotonic clock: after this time nothing more is tried."""
    away: Unknown | None = None
    """Why nothing more of the page is tried."""

    @property
    def unsent(self) -> list[SendingMessage]:
        """What may still be sent, of all aggregates."""
        return [message for aggregate in self.aggregates for message in aggregate.unsent]

    def give_up(self, away: Unknown, messages: Iterable[SendingMessage]) -> None:
        """Whether the topic has these messages is not known, and no others are tried."""
        self.away = away
        for aggregate in (one.aggregate for one in messages):
            aggregate.stopped = aggregate.stopped or replace(away, accepted=aggregate.accepted)


def stop_at_too_large(aggregates: Iterable[SendingAggregate], limit: int) -> None:
    """A message that its link does not take would cost the link: it is found before anything is sent."""
    for aggregate in aggregates:
        if (number := first_too_large(aggregate, limit)) is not None:
            aggregate.impossible = TOO_LARGE
            del aggregate.messages[number:]


def first_too_large(aggregate: SendingAggregate, limit: int) -> int | None:
    """The number of the aggregate's first message that is larger."""
    sizes = enumerate(aggregate.messages)
    return next((n for n, one in sizes if one.size > limit and _exceeds(one.message, limit)), None)


def _exceeds(message: ServiceBusMessage, limit: int) -> bool:
    """Of a message that cannot be encoded, False: its send tells that."""
    return is_encodable(message) and exact_size(message) > limit


def is_mixed(batch: Batch[SendingMessage]) -> bool:
    """Whether it has messages of several aggregates, and so of several sessions."""
    return len({id(one.aggregate) for one in batch}) > 1


def postpone(batch: Batch[SendingMessage]) -> None:
    """Nothing is left of the batch for now; what follows of its aggregates must not overtake it."""
    for one in batch:
        one.aggregate.postponed = True
