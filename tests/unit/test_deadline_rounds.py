"""What one partition of the store is too busy for holds up nothing that is due in another one."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from cosmos_outbox.outbox.deadlines import Deadlines, DueDocument
from cosmos_outbox.outbox.errors import ConcurrentChange, Throttled

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def due(partition: str, count: int) -> list[DueDocument]:
    return [DueDocument("offer", f"{partition}-{number}", partition, NOON) for number in range(count)]


@dataclass
class Partitions:
    """Documents, by pages; each physical partition of a store gives pages of its own."""

    pages_of: Sequence[Sequence[DueDocument]]
    busy: Collection[str] = ()
    raced: list[str] = field(default_factory=list)
    """Others win the race for these once."""
    tried: list[str] = field(default_factory=list)
    met: list[str] = field(default_factory=list)

    async def pages(self, now: datetime) -> AsyncIterator[Sequence[DueDocument]]:
        for page in self.pages_of:
            yield page

    async def meet(self, found: DueDocument, at: datetime) -> bool:
        self.tried.append(found.id)
        if found.id in self.raced:
            self.raced.remove(found.id)
            raise ConcurrentChange("changed by others at each attempt")
        if found.partition_key in self.busy:
            raise Throttled("429", retry_after_seconds=1)
        self.met.append(found.id)
        return True


@pytest.mark.parametrize("count", [1, 8, 100])
async def test_a_partition_that_is_throttled_holds_up_no_other_page(count: int) -> None:
    documents = Partitions([due("hot", count), due("cold", 3)], busy={"hot"})
    with pytest.raises(Throttled):
        await Deadlines(documents, lambda: NOON).meet()
    assert sorted(documents.met) == ["cold-0", "cold-1", "cold-2"]
    assert len(documents.tried) <= 8 + 3, "and it is asked no more than a few times"


async def test_one_that_is_throttled_holds_up_none_of_its_page() -> None:
    documents = Partitions([[*due("hot", 1), *due("cold", 20)]], busy={"hot"})
    assert await Deadlines(documents, lambda: NOON).meet() == 20


async def test_a_round_that_takes_long_leaves_the_rest_to_the_next_one_which_looks_anew() -> None:
    documents = Partitions([due("one", 20)])
    deadlines = Deadlines(documents, lambda: NOON, lambda: 20.0 * len(documents.met))
    assert await deadlines.meet() == 8, "what is under way is brought to its end"
    assert len(documents.tried) == 8


async def test_one_that_others_change_all_the_time_is_no_error_and_is_met_in_the_next_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    documents = Partitions([due("cold", 2)], raced=["cold-1"])
    deadlines = Deadlines(documents, lambda: NOON)
    assert (await deadlines.meet(), await deadlines.meet()) == (1, 2)
    assert caplog.messages == []
