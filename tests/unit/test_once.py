"""A batch is repeated where an answer may have been lost, is not where nothing was done, and ends before its time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from cosmos_outbox.cosmos.aggregates import batch
from cosmos_outbox.cosmos.aggregates.batch import Once, WriteRefusal
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.errors import OutcomeUnknown, Unavailable

AWAY, THROTTLED = Failure(Kind.PASSING, "no connection"), Failure(Kind.THROTTLED, "throttled")
LOST, THERE = replace(AWAY, answer_lost=True), Failure(Kind.CONFLICT, "there")


@dataclass
class Store:
    """Answers one call after the other as it was told; then it takes the batch."""

    answers: list[Failure]
    now: float = 0.0
    asked: list[float] = field(default_factory=list)
    meant: list[bool] = field(default_factory=list)
    """For each document that was there: whether it may be the batch's own."""

    async def execute(self, _: Key, __: Sequence[Write]) -> list[str]:
        self.asked.append(self.now)
        if self.answers:
            raise StoreFailed(self.answers.pop(0))
        return ["etag"]

    async def meaning(self, refusal: WriteRefusal) -> Sequence[str | None]:
        self.meant.append(refusal.answer_lost)
        return ["its own"]

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store([])
    monkeypatch.setattr(batch, "asyncio", type("asyncio", (), {"sleep": made.sleep}))
    return made


async def stored(store: Store, *answers: Failure, repeatable: bool = True) -> Sequence[str | None]:
    store.answers = [*answers]
    batch = Once(cast(Container, store), "key", [], store.meaning, repeatable=repeatable)
    with using(replace(SYSTEM, monotonic=lambda: store.now)):
        return await batch.store(give_up_at=7.0)


@pytest.mark.parametrize("answers", [[AWAY], [LOST], [LOST, THROTTLED], [LOST, THROTTLED, AWAY]])
async def test_what_may_pass_is_tried_again_and_a_throttle_too_where_an_answer_was_lost(
    store: Store, answers: list[Failure]
) -> None:
    assert await stored(store, *answers) == ["etag"]
    assert len(store.asked) == len(answers) + 1
    assert store.asked == sorted(set(store.asked)), "with pauses"


@pytest.mark.parametrize(("before", "may_be_own"), [([], False), ([AWAY], False), ([LOST, AWAY], True)])
async def test_a_document_that_is_there_may_be_the_batchs_own_only_after_a_lost_answer(
    store: Store, before: list[Failure], may_be_own: bool
) -> None:
    assert await stored(store, *before, THERE) == ["its own"]
    assert store.meant == [may_be_own]


async def test_it_ends_in_time_and_tells_whether_anything_may_be_stored(store: Store) -> None:
    with pytest.raises(Unavailable):
        await stored(store, *[AWAY] * 100)
    assert store.asked[-1] <= 7.0
    store.now, store.asked = 0.0, []
    with pytest.raises(OutcomeUnknown):
        await stored(store, LOST, *[AWAY] * 100)
    assert store.asked[-1] <= 7.0
    with pytest.raises(OutcomeUnknown):
        await stored(store, LOST, repeatable=False)
