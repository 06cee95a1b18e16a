"""The record of a change with a key is stored although an answer is lost; whoever misses it is told to ask again."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from cosmos_outbox.cosmos.aggregates.change_records import CosmosChangeRecords
from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.outbox.unit_of_work import ChangeRecord
from cosmos_outbox.testing.documents import Documents, MemoryContainer
from tests.support.virtual_time import in_virtual_time

NO = ChangeRecord("r-1", "fingerprint", 3, 409)


class OnceAway(MemoryContainer):
    """Does not answer the first write, and does not carry it out."""

    away: bool = True

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        away, self.away = self.away, False
        if away:
            raise StoreFailed(Failure(Kind.PASSING, "on purpose", answer_lost=True))
        return await super().execute(partition_key, writes)


def test_a_record_whose_first_write_gets_no_answer_is_stored_all_the_same() -> None:
    async def story() -> ChangeRecord | None:
        records = CosmosChangeRecords(OnceAway(), 600, [])
        await records.create(NO, "p", monotonic() + 60)
        return await records.find("r-1", "p")

    assert in_virtual_time(story()) == NO


class Passing(MemoryContainer):
    """After it told whether there is a document, an hour passes."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)
        super().__init__(Documents(clock=lambda: self.now))

    async def exists(self, item_id: str, partition_key: Key) -> bool:
        there = await super().exists(item_id, partition_key)
        self.now += timedelta(hours=1)
        return there


async def test_a_record_that_expires_while_it_is_read_is_asked_for_again() -> None:
    records = CosmosChangeRecords(Passing(), 600, [])
    await records.create(NO, "p", monotonic() + 60)
    with pytest.raises(Unavailable, match="send the request again"):
        await records.find("r-1", "p")
