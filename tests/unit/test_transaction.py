"""A batch is repeated where an answer may have been lost, is not where nothing was done, and ends before its time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest

from cosmos_outbox.cosmos import transaction
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.cosmos.transaction import Batch
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.errors import OutcomeUnknown

AWAY, THROTTLED = Failure(Kind.PASSING, "no connection"), Failure(Kind.THROTTLED, "throttled")
EVENT: Item = {"id": "e", "aggregateType": "seat", "data": {"action": "Held"}}
LOST, THERE = replace(AWAY, answer_lost=True), Failure(Kind.CONFLICT, "there")


@dataclass
class Store:
    """Answers one call after the other as the test asks; then it takes the batch."""

    answers: list[Failure]
    now: float = 0.0
    asked: list[float] = field(default_factory=list)
    is_own: bool = False
    """Whether what is there was stored by an attempt at this batch."""

    async def execute(self, _: Key, writes: Sequence[Write]) -> list[str]:
        self.asked.append(self.now)
        if self.answers:
            raise StoreFailed(self.answers.pop(0))
        return ["etag"] * len(writes)

    async def read(self, item_id: str, _: Key) -> Item | None:
        return EVENT if self.is_own else None

    async def first(self, *_: object, **__: object) -> list[Item]:
        return [{"id": "a", "_etag": "its own"}] if self.is_own else []

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store([])
    waits = SimpleNamespace(sleep=made.sleep, CancelledError=asyncio.CancelledError)
    monkeypatch.setattr(transaction, "asyncio", waits)
    return made


async def stored(store: Store, *answers: Failure, events: Sequence[Item] = (EVENT,)) -> Sequence[str | None]:
    store.answers = [*answers]
    batch = Batch(cast(Container, store), "key", [Write.create({"id": "a"})], events)
    with using(replace(SYSTEM, monotonic=lambda: store.now)):
        return await batch.store()


@pytest.mark.parametrize("answers", [[AWAY], [LOST], [LOST, THROTTLED], [LOST, THROTTLED, AWAY]])
async def test_a_passing_failure_is_retried_and_a_throttle_after_a_lost_answer(
    store: Store, answers: list[Failure]
) -> None:
    assert await stored(store, *answers) == ["etag"]
    assert len(store.asked) == len(answers) + 1
    assert store.asked == sorted(set(store.asked)), "with pauses"


@pytest.mark.parametrize("before", [[], [AWAY], [LOST, AWAY]])
async def test_what_is_there_is_the_batchs_own_or_another_writers(
    store: Store, before: list[Failure]
) -> None:
    with pytest.raises(StoreFailed):
        await stored(store, *before, THERE)
    store.is_own = True
    assert await stored(store, *before, THERE) == ["its own"]


async def test_without_an_event_a_lost_answer_leaves_the_outcome_unknown(store: Store) -> None:
    with pytest.raises(StoreFailed):
        await stored(store, AWAY, THERE, events=())
    with pytest.raises(OutcomeUnknown):
        await stored(store, replace(THERE, answer_lost=True), events=())
    store.asked = []
    with pytest.raises(OutcomeUnknown):
        await stored(store, LOST, events=())
    assert len(store.asked) == 1


async def test_it_ends_in_time_and_says_whether_anything_may_be_stored(store: Store) -> None:
    with pytest.raises(StoreFailed):
        await stored(store, *[AWAY] * 100)
    assert store.asked[-1] <= 7.0
    store.now, store.asked = 0.0, []
    with pytest.raises(OutcomeUnknown):
        await stored(store, LOST, *[AWAY] * 100)
    assert store.asked[-1] <= 7.0
