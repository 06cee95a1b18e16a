"""No two batches that may fly at once carry the same aggregate, and an aggregate's messages keep their order.

The batches of one chain fly one after the other, those of different chains side by side. An aggregate is whole in one
batch where that is possible: cut in two, its second batch would have to wait for the first. So the aggregates are
placed by size, the largest first, each into the first batch that has room for all of it; what is too large for any
batch makes a chain of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


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
