"""What the search for due aggregates finds is theirs alone, and a store that is away is told as away."""

from dataclasses import dataclass
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.aggregates.deadlines import DueAggregates
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.deadlines import DueDocument
from cosmos_outbox.outbox.errors import Throttled
from cosmos_outbox.outbox.unit_of_work import Origin
from cosmos_outbox.testing.documents import MemoryContainer
from tests.support.offers import NOON, Offer, PatientOffer


class Store(MemoryContainer):
    """Does as told, once, to whoever looks or writes next."""

    failure: Kind | None = None
    gone_after: int | None = None
    """A document is removed after so many reads."""

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        found = await super().read_with_age(item_id, partition_key)
        if self.gone_after is not None:
            self.gone_after -= 1
            if self.gone_after == 0:
                self.documents.execute(partition_key, [Write.delete(item_id)])
        return found

    async def page(self, *args: Any, **named: Any) -> tuple[list[Item], str | None]:
        self._fail()
        return await super().page(*args, **named)

    async def execute(self, partition_key: Key, writes: Any) -> list[str]:
        self._fail()
        return await super().execute(partition_key, writes)

    def _fail(self) -> None:
        kind, self.failure = self.failure, None
        if kind is not None:
            raise StoreFailed(Failure(kind, "on purpose"))


@dataclass
class Due:
    """One offer that is due, and who looks for it."""

    store: Store
    offer: Offer

    def of(self, kind: type[Offer] = Offer) -> DueAggregates:
        return DueAggregates(self.store, aggregates_over(self.store), {"offer": kind})

    @property
    def found(self) -> DueDocument:
        name = self.offer.aggregate_id
        return DueDocument("offer", name, name, NOON)


def aggregates_over(store: Store) -> Aggregates:
    unused: Any = None
    return Aggregates(
        lambda origin: CosmosUnitOfWork(store, "test", origin, Lifetimes(600, 600)),
        unused,
    )


@pytest.fixture
async def due() -> Due:
    store, offer = Store(), Offer.make()
    await aggregates_over(store).create(offer, Origin("test"))
    return Due(store, offer)


async def test_what_others_keep_beside_the_aggregates_is_not_taken_for_one(due: Due) -> None:
    when = "2026-03-01T11:00:00Z"
    for item in (
        {"id": "of another type", "type": "memo", "due": when},
        {"id": "without a type", "due": when},
        {"id": "without a time", "type": "offer", "due": "2026-03-01, before noon"},
    ):
        await due.store.execute("others", [Write.create(item | {"partitionKey": "others"})])
    assert [[*page] async for page in due.of().pages(NOON)] == [[due.found]]


async def test_a_store_that_cannot_be_searched_is_told_as_that(due: Due) -> None:
    due.store.failure = Kind.THROTTLED
    with pytest.raises(Throttled):
        _ = [page async for page in due.of().pages(NOON)]


async def test_what_is_gone_when_it_is_to_be_met_is_not_counted_as_met(due: Due) -> None:
    await aggregates_over(due.store).change(Offer, due.offer.aggregate_id, Offer.delete, Origin("test"))
    assert await due.of().meet(due.found, NOON) is False


async def test_what_goes_before_its_document_is_corrected_is_left_alone(due: Due) -> None:
    due.store.gone_after = 2
    assert await due.of(PatientOffer).meet(due.found, NOON) is False
    assert due.store.gone_after == -1, "it was read again"


@pytest.mark.parametrize("kind", [Kind.STALE, Kind.MISSING])
async def test_who_changes_a_document_that_was_to_be_corrected_has_corrected_it(due: Due, kind: Kind) -> None:
    due.store.failure = kind
    assert await due.of(PatientOffer).meet(due.found, NOON) is False
    assert due.store.failure is None, "it was tried"


async def test_a_correction_that_the_store_has_no_time_for_is_told_as_that(due: Due) -> None:
    due.store.failure = Kind.THROTTLED
    with pytest.raises(Throttled):
        await due.of(PatientOffer).meet(due.found, NOON)
