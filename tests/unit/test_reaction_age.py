"""A message is too old before its record can have expired, whichever clocks are wrong by half a day."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from cosmos_outbox.cosmos.aggregates.unit_of_work import Lifetimes
from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder, ReactionRecord, SeenTarget, TargetRef
from cosmos_outbox.cosmos.inbox.reactions import ReactionInbox
from cosmos_outbox.inbox.errors import NotApplied, ReactionRefused
from cosmos_outbox.inbox.receiver import MARGIN
from tests.support.reactions import Heap, message_for, put_mark

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIVES = timedelta(days=61)


class Expiring:
    """Records that the store's own clock removes, quick enough for thousands of calls."""

    kind, name, order = Heap, "marks", InOrder.ANY
    lifetimes = Lifetimes(600, 600, int(LIVES.total_seconds()))

    def __init__(self) -> None:
        self.now = NOON
        self.written: list[datetime] = []
        self.records: dict[str, tuple[datetime, ReactionRecord]] = {}

    async def find(self, place: TargetRef) -> ReactionRecord | None:
        at, record = self.records.get(place.record, (None, None))
        return record if at is not None and self.now < at + LIVES else None

    async def read(self, place: TargetRef) -> SeenTarget[Heap]:
        return SeenTarget(Heap.load(Heap.make("h").state), "1")

    async def write(self, place: TargetRef, *given: Any) -> None:
        if await self.find(place) is None:
            self.written.append(self.now)
            self.records[place.record] = self.now, given[2].record


def _drawn(chance: random.Random, most: timedelta) -> timedelta:
    return most * chance.uniform(-1, 1)


async def _handled_at(
    times: Sequence[timedelta], wrong: Sequence[timedelta], publisher: timedelta
) -> Expiring:
    """A message that comes at these times after it was made, each to an instance with a clock of its own."""
    reactions = Expiring()
    message = message_for("h", "a")
    object.__setattr__(message, "created_at", NOON + publisher)
    stored = cast(Any, reactions)
    for time, by in zip(times, wrong, strict=True):
        reactions.now = NOON + time
        inbox = ReactionInbox(stored, lambda _: "h", put_mark, lambda by=by: reactions.now + by)  # type: ignore[misc]  # a default
        try:
            await inbox.handle(message)
        except (NotApplied, ReactionRefused):
            continue
    return reactions


@pytest.mark.long
async def test_no_clocks_that_are_wrong_by_half_a_day_apply_a_message_twice() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        publisher = _drawn(
            chance, timedelta(days=chance.choice([0, 1, 90]))
        )  # that one may be wrong by any time
        days = sorted(chance.choice([chance.uniform(0, 3), chance.uniform(55, 66)]) for _ in range(6))
        wrong = [_drawn(chance, MARGIN / 4) for _ in days]
        found = await _handled_at([timedelta(days=each) for each in days], wrong, publisher)
        assert len(found.written) <= 1, f"seed {seed}"


@pytest.mark.parametrize("days", [0.6, 100])
async def test_a_message_from_the_future_waits(days: float) -> None:
    assert (await _handled_at([timedelta()], [timedelta()], timedelta(days=days))).written == []
