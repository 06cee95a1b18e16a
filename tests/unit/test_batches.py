"""Packing: every message once, each aggregate in order, and no aggregate in two batches that may fly at once."""

from itertools import chain as chained

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from cosmos_outbox.servicebus.batches import (
    Batch,
    Chain,
    Room,
    SendingAggregate,
    SendingMessage,
    halves,
    pack,
)

Page = list[list[SendingMessage]]
SIZES = st.lists(st.lists(st.integers(1, 60), max_size=8), max_size=12)
ROOMS = st.builds(Room, bytes=st.integers(10, 200), messages=st.integers(1, 20), mixes=st.booleans())
MESSAGE = ServiceBusMessage(b"")


def page_of(*sizes: list[int]) -> Page:
    return [
        [SendingMessage(aggregate, MESSAGE, size) for size in group]
        for group, aggregate in ((group, SendingAggregate()) for group in sizes)
    ]


def batches(chains: list[Chain]) -> list[Batch]:
    return list(chained.from_iterable(chains))


@given(SIZES, ROOMS)
def test_every_message_is_in_one_batch(sizes: list[list[int]], room: Room) -> None:
    page = page_of(*sizes)
    packed = list(chained.from_iterable(batches(pack(page, room))))
    assert sorted(map(id, packed)) == sorted(map(id, chained.from_iterable(page)))


@given(SIZES, ROOMS)
def test_an_aggregate_is_in_one_chain_and_in_order(sizes: list[list[int]], room: Room) -> None:
    page, seen = page_of(*sizes), dict[int, int]()
    numbers = {id(message): number for group in page for number, message in enumerate(group)}
    for number, chain in enumerate(pack(page, room)):
        last: dict[int, int] = {}
        for message in chained.from_iterable(chain):
            aggregate = id(message.aggregate)
            assert seen.setdefault(aggregate, number) == number
            assert last.get(aggregate, -1) < numbers[id(message)]
            last[aggregate] = numbers[id(message)]


@given(SIZES, ROOMS)
def test_no_batch_is_larger_than_it_may_be(sizes: list[list[int]], room: Room) -> None:
    for batch in batches(pack(page_of(*sizes), room)):
        assert 1 <= len(batch) <= room.messages
        assert len(batch) == 1 or sum(message.size for message in batch) <= room.bytes
        assert room.mixes or len({id(message.aggregate) for message in batch}) == 1


@given(SIZES, ROOMS)
def test_what_fits_into_one_batch_is_one_batch(sizes: list[list[int]], room: Room) -> None:
    everything = list(chained.from_iterable(sizes))
    if room.mixes and everything and sum(everything) <= room.bytes and len(everything) <= room.messages:
        assert len(batches(pack(page_of(*sizes), room))) == 1


@given(SIZES, ROOMS)
def test_no_two_chains_of_one_batch_could_be_one(sizes: list[list[int]], room: Room) -> None:
    alone = [chain[0] for chain in pack(page_of(*sizes), room) if len(chain) == 1]
    for number, batch in enumerate(alone):
        for other in alone[number + 1 :]:
            together = [*batch, *other]
            fits = sum(message.size for message in together) <= room.bytes and len(together) <= room.messages
            assert not (room.mixes and fits)


@pytest.mark.parametrize(
    ("sizes", "room", "expected"),
    [
        # One event each of many aggregates: one batch.
        ([[1]] * 4, Room(100, 100, mixes=True), [[4]]),
        # The same, one session a batch: a chain each, so that all may fly at once.
        ([[1]] * 4, Room(100, 100, mixes=False), [[1], [1], [1], [1]]),
        # What is too large for one batch is a chain, and the others fill its first batch.
        ([[5, 5], [60, 50]], Room(100, 100, mixes=True), [[3, 1]]),
        # A message above the room flies alone, between those before and behind it.
        ([[5, 200, 5], [1]], Room(100, 100, mixes=True), [[2, 1, 1]]),
        # One message at a time, as a partitioned topic needs it.
        ([[1, 1], [1]], Room(100, 1, mixes=False), [[1, 1], [1]]),
        ([[], []], Room(100, 100, mixes=True), []),
        # What fits exactly is one batch, by its bytes or by its messages.
        ([[40, 20], [30, 10]], Room(100, 100, mixes=True), [[4]]),
        ([[1, 1], [1]], Room(100, 3, mixes=True), [[3]]),
    ],
)
def test_how_a_page_is_packed(sizes: list[list[int]], room: Room, expected: list[list[int]]) -> None:
    assert [[len(batch) for batch in chain] for chain in pack(page_of(*sizes), room)] == expected


def test_halves_are_the_whole_in_order() -> None:
    [[batch]] = pack(page_of([1, 1, 1, 1, 1]), Room(100, 100, mixes=True))
    first, second = halves(batch)
    assert [*first, *second] == batch
    assert (len(first), len(second)) == (2, 3)
