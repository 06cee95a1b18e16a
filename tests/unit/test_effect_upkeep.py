"""The timer of effects while the store, or the service that the effects call, is away: for all, or for a few."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from cosmos_outbox.inbox.effect import EffectMarker, Mark, MarkState, SeenMark
from cosmos_outbox.inbox.effect_upkeep import AWAY_AT, SIDE_BY_SIDE, EffectUpkeep
from cosmos_outbox.inbox.errors import EffectAway, EffectNotDone, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.owed import MOST, Owed
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.effects import Clock, FakeLedger, Outbound, inbox_over
from tests.support.inbox import NOON, event

MANY = 60


@dataclass
class Partitioned(FakeLedger):
    """A ledger whose aggregates may each be away, as a partition of a store is that is throttled."""

    away: set[AggregateKey] = field(default_factory=set)
    asked: Counter[AggregateKey] = field(default_factory=Counter)

    async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
        self.asked[key] += 1
        if key in self.away:
            raise StoreAway("its partition is throttled")
        return await super().waiting(key)

    async def aggregates(self) -> AsyncIterator[AggregateKey]:
        """What was written last comes last, as the store lists it."""
        for key in sorted(self.versions, key=lambda each: int(self.versions[each][-1][0].version or 0)):
            if self.versions[key][-1][0].waiting:
                yield key


def keys(count: int = MANY) -> list[AggregateKey]:
    return [AggregateKey("thing", str(number)) for number in range(count)]


async def holding(*held: AggregateKey) -> Partitioned:
    """A ledger in which the effect of each aggregate's first event has failed."""
    ledger = Partitioned()
    for key in held:
        first = event(1, key=key)
        mark = Mark(first.id, MarkState.WAITING, 1, NOON, waits=first, failures=1, failing_since=NOON)
        written: SeenMark = await ledger.write(key, EffectMarker(waiting=1), mark)
        assert written.marker.waiting == 1
    return ledger


async def run(upkeep: EffectUpkeep) -> None:
    """Raises StoreAway."""
    await upkeep.run(seconds=600)


async def test_a_store_that_is_away_is_not_asked_for_every_aggregate() -> None:
    ledger = await holding(*keys())
    ledger.away |= {*keys()}
    with pytest.raises(StoreAway, match="throttled"):
        await run(EffectUpkeep(inbox_over(ledger, Outbound(), Clock())))
    assert ledger.asked.total() < AWAY_AT + SIDE_BY_SIDE


async def test_a_service_that_is_away_is_not_asked_for_every_effect() -> None:
    outbound = Outbound(raises=[EffectAway("no mail goes out") for _ in keys()])
    with pytest.raises(EffectAway, match="no mail"):
        await run(EffectUpkeep(inbox_over(await holding(*keys()), outbound, Clock())))
    assert len(outbound.asked) < AWAY_AT + SIDE_BY_SIDE


async def test_aggregates_that_stay_away_for_themselves_do_not_keep_the_others_waiting() -> None:
    """They come first in the store's order, since nothing can be written of them."""
    ledger, outbound = await holding(*keys()), Outbound()
    ledger.away |= {*keys()[: MANY // 2]}
    upkeep = EffectUpkeep(inbox_over(ledger, outbound, Clock()))
    for _ in range(MANY):
        try:
            await run(upkeep)
        except StoreAway:
            continue
        break
    assert {*outbound.asked} == {event(1, key=key).id for key in keys()[MANY // 2 :]}


async def test_few_that_are_away_are_left_to_the_next_run_and_no_failure_of_this_one() -> None:
    ledger, outbound = await holding(*keys(10)), Outbound()
    ledger.away |= {*keys(AWAY_AT - 1)}
    upkeep = EffectUpkeep(inbox_over(ledger, outbound, Clock()))
    await run(upkeep)
    assert len(outbound.asked) == 10 - (AWAY_AT - 1)
    assert upkeep.found_away == ledger.away
    ledger.away.clear()
    await run(upkeep)
    assert len(outbound.asked) == 10
    assert upkeep.found_away == set()


async def test_all_are_run_when_the_store_is_there_again() -> None:
    ledger, outbound = await holding(*keys()), Outbound()
    upkeep = EffectUpkeep(inbox_over(ledger, outbound, Clock()))
    ledger.away |= {*keys()}
    for _ in range(3):
        with pytest.raises(StoreAway):
            await run(upkeep)
    assert max(ledger.asked.values()) == 1, "each run begins with others"
    ledger.away.clear()
    await run(upkeep)
    assert len(outbound.asked) == MANY


async def test_a_process_remembers_a_bounded_number_of_records_that_it_owes() -> None:
    owed, seen = Owed(), SeenMark(EffectMarker(), Mark("any", MarkState.STARTED, 1, NOON, by="me"))

    async def record(_: SeenMark) -> EffectMarker | None:
        return None

    for number in range(1, MOST + 2):
        owed.keep(event(number), "me", record)
    assert len(owed) == MOST
    assert owed.of(event(1), seen) is None, "the oldest goes first"
    assert owed.of(event(2), seen) is record


async def test_a_run_without_time_asks_for_nothing() -> None:
    ledger = await holding(*keys(3))
    await EffectUpkeep(inbox_over(ledger, Outbound(), Clock())).run(seconds=0)
    assert ledger.asked.total() == 0


async def test_an_aggregate_of_which_nothing_waits_any_more_is_forgotten() -> None:
    ledger = await holding(*keys(2))
    ledger.away |= {*keys(2)}
    upkeep = EffectUpkeep(inbox_over(ledger, Outbound(), Clock()))
    await run(upkeep)
    ledger.versions.clear()
    await run(upkeep)
    assert upkeep.found_away == set()


async def waiting_in(ledger: FakeLedger, *events: Event) -> None:
    """Events of one aggregate that wait, as a timer finds them."""
    for each in events:
        seen = await ledger.read(each.aggregate, each.id, fenced=True)
        mark = Mark(each.id, MarkState.WAITING, each.sequence, NOON, waits=each)
        await ledger.write(each.aggregate, replace(seen.marker, waiting=seen.marker.waiting + 1), mark)


async def test_the_effects_of_one_aggregate_that_take_long_do_not_prolong_a_run() -> None:
    """The timer comes each minute; what a run has begun ends, and nothing more is begun."""
    ledger, outbound, passed = FakeLedger(), Outbound(), [0.0]
    await waiting_in(ledger, *(event(number) for number in range(1, 11)))

    async def slow(received: Event) -> None:
        passed[0] += 10
        await outbound.effect(received)

    inbox = replace(inbox_over(ledger, outbound, Clock()), effect=slow, time=lambda: passed[0])
    await EffectUpkeep(inbox).run(seconds=25)
    assert outbound.asked == [event(number).id for number in (1, 2, 3)]


async def test_what_waits_behind_an_effect_that_fails_is_not_read_at_each_run_but_what_has_no_place_is_run() -> (
    None
):
    ledger = FakeLedger()
    outbound = Outbound(raises=[EffectNotDone("no such address")])
    odd = event(None, event_id="odd")
    await waiting_in(ledger, *(event(number) for number in range(1, 51)), odd)
    before = ledger.faults.calls
    await EffectUpkeep(inbox_over(ledger, outbound, Clock())).run(seconds=60)
    assert outbound.asked == [event(1).id, "odd"]
    assert ledger.faults.calls - before < 10
