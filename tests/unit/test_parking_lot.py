"""What the store refuses, or does not answer, is told as it is: nothing counts as parked or given up that is not.

One partition in memory answers one write after the other as it was told. What only a store can prove, such as the
order of what waits, is in ``tests/contract/test_parking.py``.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from cosmos_outbox.cosmos.relay.parked_documents import (
    PARTITION,
    ParkedDocuments,
    destination_of,
    partition_of,
)
from cosmos_outbox.cosmos.relay.parking_lot import FEW_AGGREGATES, CosmosParkingLot
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.errors import PreconditionFailed, Throttled, Unavailable, UnknownContinuation
from cosmos_outbox.outbox.feed import Poison
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.notice import Notice
from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkedState
from cosmos_outbox.testing.documents import MemoryContainer
from tests.support.contacts import NOON
from tests.support.feed import EVENTS, contact_key, event_document, poison_document, read

A = contact_key("a")
REFUSED, BEHIND = read(event_document("a", 1)), read(event_document("a", 2))
LATER = NOON + timedelta(hours=1)

MAY_PASS: list[tuple[Kind, type[Exception]]] = [(Kind.PASSING, Unavailable), (Kind.THROTTLED, Throttled)]
NOT_TAKEN = [Kind.INVALID, Kind.TOO_LARGE]


class Partition(MemoryContainer):
    """Refuses the next writes as it is told, then takes them; it finds what is asked for by id or by type."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: list[Kind] = []
        self.is_away = False
        self.asked: list[Mapping[str, Any]] = []
        self.found: list[str] = []

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if self.refuses:
            raise StoreFailed(Failure(self.refuses.pop(0), "on purpose"))
        return await super().execute(partition_key, writes)

    async def fence(self, partition_key: Key) -> None:
        self._answer()

    async def read(self, item_id: str, partition_key: Key) -> Item | None:
        self._answer()
        return await super().read(item_id, partition_key)

    def _answer(self) -> None:
        if self.is_away:
            raise StoreFailed(Failure(Kind.PASSING, "away"))

    async def page(
        self,
        query: str,
        parameters: Mapping[str, Any],
        size: int,
        continuation: str | None,
        *,
        partition_key: Key | None = None,
    ) -> tuple[list[Item], str | None]:
        self.asked.append(parameters)
        asked = {one for each in parameters.values() for one in (each if isinstance(each, list) else [each])}
        found = [item for item in self.documents.all() if {item["id"], item["type"]} & asked]
        start = int(continuation or 0)
        page = found[start : start + size]
        self.found += [item["id"] for item in page]
        return page, str(start + size) if len(found) > start + size else None


@pytest.fixture
def store() -> Partition:
    return Partition()


@pytest.fixture
def lot(store: Partition) -> CosmosParkingLot:
    return CosmosParkingLot(store, "test", ParkedDocuments(EVENTS), ttl_seconds=600, clock=lambda: LATER)


def poison() -> Poison:
    found = read(poison_document(None, lsn=1))
    assert isinstance(found, Poison)
    return found


async def only_one(lot: CosmosParkingLot, *, discarded: bool = False) -> ParkedEvent:
    [found] = (await lot.page(10, None, discarded=discarded)).items
    return found


async def marker_of_a(lot: CosmosParkingLot) -> Marker:
    return (await lot.markers([A]))[A]


async def parked_alone(lot: CosmosParkingLot) -> Callable[[str], Awaitable[None]]:
    """A document of no aggregate is parked. Returns how it is given up."""
    await lot.park_alone(poison())
    event = await only_one(lot)
    return lambda reason: lot.discard_alone(event, reason)


async def parked_in_the_way(lot: CosmosParkingLot) -> Callable[[str], Awaitable[None]]:
    """An event is in the way of its aggregate. Returns how it is given up."""
    await lot.park(Marker(A).block(REFUSED, "too large", [], NOON), [REFUSED])
    event, marker = await only_one(lot), await marker_of_a(lot)
    told = Notice(A, event.event_id, event.sequence, LATER)
    return lambda reason: lot.discard(marker.with_discarded(event.event_id, LATER), event, told, reason)


async def replayed(lot: CosmosParkingLot) -> tuple[Marker, list[ParkedEvent]]:
    """Two events wait, and are being replayed."""
    await lot.park(Marker(A).block(REFUSED, "too large", [], NOON), [REFUSED, BEHIND])
    claimed = await lot.store((await marker_of_a(lot)).claimed("replay", LATER))
    return claimed, [parked for parked, _ in await lot.waiting(A, 10)]


async def test_a_document_of_no_aggregate_is_parked_once_and_whole(lot: CosmosParkingLot) -> None:
    assert await lot.park_alone(poison()) is True
    assert await lot.park_alone(poison()) is False
    assert (await only_one(lot)).document["data"] == {"broken": 1}


@pytest.mark.parametrize(("kind", "told"), MAY_PASS)
async def test_a_document_of_no_aggregate_that_was_not_stored_is_not_told_as_parked(
    store: Partition, lot: CosmosParkingLot, kind: Kind, told: type[Exception]
) -> None:
    """The page waits: it would be lost."""
    store.refuses = [kind]
    with pytest.raises(told):
        await lot.park_alone(poison())
    assert [*store.documents.all()] == []
    assert await lot.park_alone(poison()) is True
    assert (await only_one(lot)).document["data"] == {"broken": 1}


@pytest.mark.parametrize("kind", NOT_TAKEN)
async def test_a_document_of_no_aggregate_that_the_store_does_not_take_again_is_parked_without_it(
    store: Partition, lot: CosmosParkingLot, kind: Kind
) -> None:
    store.refuses = [kind]
    assert await lot.park_alone(poison()) is True
    parked = await only_one(lot)
    assert parked.document == {"id": "poison-1", "partitionKey": None}
    assert "does not take the document here" in parked.reason


@pytest.mark.parametrize("second", [*NOT_TAKEN, Kind.PASSING])
@pytest.mark.parametrize("first", NOT_TAKEN)
async def test_a_document_of_no_aggregate_that_is_refused_without_its_content_too_is_not_told_as_parked(
    store: Partition, lot: CosmosParkingLot, first: Kind, second: Kind
) -> None:
    store.refuses = [first, second]
    with pytest.raises(Unavailable):
        await lot.park_alone(poison())
    assert [*store.documents.all()] == []


Parked = Callable[[CosmosParkingLot], Awaitable[Callable[[str], Awaitable[None]]]]
each_kind = pytest.mark.parametrize("parked", [parked_alone, parked_in_the_way])


@each_kind
async def test_what_is_given_up_stays_to_be_looked_at(lot: CosmosParkingLot, parked: Parked) -> None:
    discard = await parked(lot)
    await discard("not needed")
    given_up = await only_one(lot, discarded=True)
    assert given_up.discarding is not None
    assert (given_up.discarding.at, given_up.discarding.reason) == (LATER, "not needed")
    assert "data" in given_up.document


@each_kind
@pytest.mark.parametrize(("kind", "told"), MAY_PASS)
async def test_a_discarding_that_was_not_stored_is_not_told_as_done(
    store: Partition, lot: CosmosParkingLot, parked: Parked, kind: Kind, told: type[Exception]
) -> None:
    discard = await parked(lot)
    store.refuses = [kind]
    with pytest.raises(told):
        await discard("r")
    assert (await only_one(lot)).state is not ParkedState.DISCARDED
    await discard("r")
    assert "data" in (await only_one(lot, discarded=True)).document


@each_kind
@pytest.mark.parametrize("kind", NOT_TAKEN)
async def test_what_is_given_up_is_kept_without_its_document_where_the_store_does_not_take_it(
    store: Partition, lot: CosmosParkingLot, parked: Parked, kind: Kind
) -> None:
    discard = await parked(lot)
    store.refuses = [kind]
    await discard("r")
    assert "data" not in (await only_one(lot, discarded=True)).document


@each_kind
@pytest.mark.parametrize(
    ("second", "told"),
    [*((kind, Unavailable) for kind in (*NOT_TAKEN, Kind.PASSING)), (Kind.STALE, PreconditionFailed)],
)
async def test_a_discarding_that_fails_twice_is_told_as_it_failed_at_last(
    store: Partition, lot: CosmosParkingLot, parked: Parked, second: Kind, told: type[Exception]
) -> None:
    discard = await parked(lot)
    store.refuses = [Kind.TOO_LARGE, second]
    with pytest.raises(told):
        await discard("r")
    assert (await only_one(lot)).state is not ParkedState.DISCARDED


async def test_of_two_who_give_up_one_document_the_first_is_told(
    store: Partition, lot: CosmosParkingLot
) -> None:
    await lot.park_alone(poison())
    event = await only_one(lot)
    await lot.discard_alone(event, "the first")
    await lot.discard_alone(event, "the second")
    discarding = (await only_one(lot, discarded=True)).discarding
    assert discarding is not None
    assert discarding.reason == "the first"

    await store.execute(PARTITION, [Write.delete(event.id)])
    await lot.discard_alone(event, "it has expired")
    assert [*store.documents.all()] == []


async def test_an_operator_is_not_told_that_something_is_gone_when_nobody_could_look(
    store: Partition, lot: CosmosParkingLot
) -> None:
    await lot.park_alone(poison())
    event = await only_one(lot)
    store.is_away = True
    with pytest.raises(Unavailable):
        await lot.get(event.id)
    with pytest.raises(Unavailable):
        await lot.discard_alone(event, "r")


async def test_no_aggregate_is_free_while_no_fence_proves_it(store: Partition, lot: CosmosParkingLot) -> None:
    store.is_away = True
    with pytest.raises(Unavailable):
        await lot.markers([A])


@pytest.mark.parametrize(("kind", "told"), MAY_PASS)
async def test_a_replay_is_not_told_that_another_one_is_under_way_when_the_store_fails(
    store: Partition, lot: CosmosParkingLot, kind: Kind, told: type[Exception]
) -> None:
    marker, events = await replayed(lot)
    store.refuses = [kind]
    with pytest.raises(told):
        await lot.settle(marker, events, lambda newest: newest)
    store.refuses = [kind]
    with pytest.raises(told):
        await lot.recount(marker)
    assert await marker_of_a(lot) == marker
    assert len(await lot.waiting(A, 10)) == marker.waiting == 2


async def test_who_loses_each_race_is_told_so_and_nothing_is_changed(
    store: Partition, lot: CosmosParkingLot
) -> None:
    marker, events = await replayed(lot)
    third = read(event_document("a", 3))
    for change in (
        lambda: lot.park(marker, [third]),
        lambda: lot.settle(marker, events, lambda newest: newest),
        lambda: lot.recount(marker),
    ):
        store.refuses = [Kind.STALE] * 100
        with pytest.raises(PreconditionFailed):
            await change()
        store.refuses = []
        assert await marker_of_a(lot) == marker
        assert [parked.event_id for parked, _ in await lot.waiting(A, 10)] == [REFUSED.id, BEHIND.id]


async def test_who_parks_behind_a_marker_that_is_not_there_any_more_is_told_so_though_the_events_are_parked(
    lot: CosmosParkingLot,
) -> None:
    """Another instance has parked them: whoever comes second reads what became of the aggregate."""
    behind = Marker(A).block(REFUSED, "too large", [], NOON)
    assert await lot.park(behind, [REFUSED, BEHIND]) == {REFUSED.id, BEHIND.id}
    with pytest.raises(PreconditionFailed):
        await lot.park(behind, [REFUSED, BEHIND])
    assert (await marker_of_a(lot)).waiting == 2


async def test_of_few_aggregates_their_own_markers_are_read_and_of_many_all_while_there_are_few(
    store: Partition, lot: CosmosParkingLot
) -> None:
    names = [f"c{number}" for number in range(FEW_AGGREGATES + 1)]
    for name in names[:3]:
        await lot.store(Marker(contact_key(name)))
    few, many = [contact_key(name) for name in names[1:]], [contact_key(name) for name in names]
    assert {*await lot.markers(few)} == {contact_key("c1"), contact_key("c2")}
    assert len(store.found) == 2, "the third one's is not read"
    store.asked.clear()
    assert {*await lot.markers(many)} == {contact_key(name) for name in names[:3]}
    assert [len(parameters) for parameters in store.asked] == [1], "one small query, however many they are"


async def test_a_token_of_the_parked_events_is_none_of_the_discarded_ones(lot: CosmosParkingLot) -> None:
    await lot.park(Marker(A).block(REFUSED, "too large", [], NOON), [REFUSED, BEHIND])
    token = (await lot.page(1, None)).continuation_token
    assert token is not None
    with pytest.raises(UnknownContinuation):
        await lot.page(1, token, discarded=True)
    assert len((await lot.page(1, token)).items) == 1


def test_the_name_of_a_partition_tells_whose_parked_events_are_in_it() -> None:
    assert [partition_of(each) for each in ("", "partner")] == ["parked", "parked.partner"]
    assert [destination_of(each) for each in ("parked", "parked.partner")] == ["", "partner"]
