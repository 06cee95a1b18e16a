"""Failing well: what hits everybody is waited for, what hits one aggregate makes room, what can never be is kept."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.inbox.errors import NotApplied, SourceBehind, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import (
    CHECK_SECONDS,
    FAILURES,
    HOLD_SECONDS,
    LONGEST_CALL_SECONDS,
    PATIENT_SECONDS,
    SICK_SECONDS,
    WAIT_SECONDS,
    Receiver,
    told,
)
from cosmos_outbox.inbox.retrier import AWAY_AT, Retrier, Tried
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.streak import TELL_AT
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from outbox_simulation.engine.loop import Loop
from tests.support.inbox import (
    KEY,
    NOON,
    FakeEntries,
    FakeSetAside,
    FakeSource,
    Faults,
    delivery,
    event,
    project,
    read,
)

ROOT = Path(__file__).resolve().parents[2]
Handle = Callable[[Event], Awaitable[object]]


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def receiver(handle: Handle, set_aside: FakeSetAside, clock: FakeTime | None = None) -> Receiver:
    if clock is None:
        return Receiver(read, handle, set_aside, now=lambda: NOON)
    return Receiver(read, handle, set_aside, now=lambda: NOON, time=clock.time, sleep=clock.sleep)


async def away(_: Event) -> None:
    raise StoreAway("the store is away")


async def sick(_: Event) -> None:
    raise ZeroDivisionError("johndoe@contoso.com")


async def well(_: Event) -> None:
    pass


async def test_nothing_is_raised_without_having_waited() -> None:
    clock = FakeTime()
    with pytest.raises(StoreAway):
        await receiver(away, FakeSetAside(), clock).receive(delivery(event(1)))
    assert 30 <= clock.now <= 60


async def test_a_bug_in_the_adapter_of_the_store_is_waited_for_too() -> None:
    """Raised at once, the message would use up its deliveries, and a worker would end for it."""
    clock, records = FakeTime(), FakeSetAside(Faults(dict.fromkeys(range(1_000), (ZeroDivisionError, False))))
    with pytest.raises(StoreAway, match="a bug: ZeroDivisionError in run"):
        await receiver(sick, records, clock).receive(delivery(event(1)))
    assert clock.now >= WAIT_SECONDS


async def test_an_hour_without_the_store_uses_few_deliveries_and_sets_nothing_aside() -> None:
    """Today's burn of ten deliveries in 20 ms cannot happen: each of them waits."""
    clock, records, deliveries = FakeTime(), FakeSetAside(), 0
    while clock.now < 3600:
        with pytest.raises(StoreAway):
            await receiver(away, records, clock).receive(delivery(event(1)))
        deliveries += 1
    assert deliveries < 200
    assert records.records == {}


async def test_a_store_that_comes_back_within_the_wait_costs_no_delivery() -> None:
    clock, handled = FakeTime(), []

    async def back_soon(received: Event) -> None:
        if clock.now < 20:
            raise StoreAway("away")
        handled.append(received.sequence)

    await receiver(back_soon, FakeSetAside(), clock).receive(delivery(event(1)))
    assert handled == [1]
    assert clock.now < WAIT_SECONDS


async def test_what_hits_one_aggregate_is_tried_five_times_and_set_aside() -> None:
    clock, records, tries = FakeTime(), FakeSetAside(), []

    async def counted(received: Event) -> None:
        tries.append(received)
        await sick(received)

    await receiver(counted, records, clock).receive(delivery(event(1)))
    [record] = records.records.values()
    assert len(tries) == FAILURES
    assert (record.state, record.aggregate, record.sequence) == (RecordState.WAITING, KEY, 1)
    assert record.reason.startswith("ZeroDivisionError in sick")
    assert "contoso" not in repr(record)
    assert clock.now == pytest.approx(0.15), "five tries within 150 ms, not at once"


async def test_the_next_event_of_an_aggregate_that_waits_is_set_aside_at_its_first_failure() -> None:
    records, tries = FakeSetAside(), []

    async def counted(received: Event) -> None:
        tries.append(received.sequence)
        await sick(received)

    for sequence in (1, 2, 3):
        await receiver(counted, records, FakeTime()).receive(delivery(event(sequence), sequence))
    assert tries == [1] * FAILURES + [2, 3]
    assert set(records.states().values()) == {RecordState.WAITING}


async def test_what_can_never_be_applied_is_kept_as_refused() -> None:
    records = FakeSetAside()
    await receiver(well, records).receive(delivery(None))
    assert records.states() == {"junk": RecordState.REFUSED}


async def test_a_message_on_which_the_reading_itself_fails_is_kept_as_refused_and_ends_no_loop() -> None:
    """Raised, it would come back at once, become a dead letter, and end each collecting of the dead letters."""
    records = FakeSetAside()

    def broken(_: object) -> Event | None:
        raise KeyError("johndoe@contoso.com")

    receiving = Receiver(broken, well, records, now=lambda: NOON)
    await receiving.receive(delivery(event(1), 1))
    await receiving.keep(delivery(event(2), 2), "dead letter: MaxDeliveryCountExceeded")
    assert [record.state for record in records.records.values()] == [RecordState.REFUSED, RecordState.REFUSED]
    assert {"johndoe" in record.reason for record in records.records.values()} == {False}
    retrier = Retrier(read, well, records, timedelta(days=1), lambda: NOON)
    await retrier.apply(next(iter(records.records)))  # once the bug is mended


async def test_a_redelivery_revives_nothing_and_another_message_of_that_id_is_another_record() -> None:
    records = FakeSetAside()
    receive = receiver(sick, records, FakeTime()).receive
    await receive(delivery(event(1), 7))
    [record] = records.records.values()
    await Retrier(read, well, records, timedelta(days=1), lambda: NOON).run(seconds=5)
    await receive(delivery(event(1), 7))
    assert records.records[record.id].state is RecordState.APPLIED
    assert records.records[record.id].delivery is None
    await receive(delivery(event(1), 8))
    assert len(records.records) == 2


async def test_a_record_that_cannot_be_stored_is_waited_for_and_not_completed() -> None:
    clock = FakeTime()
    records = FakeSetAside(Faults({0: (StoreAway, True)}))
    await receiver(sick, records, clock).receive(delivery(event(1)))
    assert len(records.records) == 1
    gone = FakeSetAside(Faults(dict.fromkeys(range(100), (StoreAway, False))))
    with pytest.raises(StoreAway):
        await receiver(sick, gone, clock).receive(delivery(event(1)))


async def test_a_call_that_hangs_ends_before_the_host_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cosmos_outbox.inbox.receiver.PATIENT_SECONDS", 0.05)
    clock = FakeTime()

    async def hangs(_: Event) -> None:
        clock.now += 40
        await asyncio.Event().wait()

    with pytest.raises(StoreAway, match="slowly"):
        await receiver(hangs, FakeSetAside(), clock).receive(delivery(event(1)))
    hours, minutes, seconds = map(
        int, json.loads((ROOT / "host.json").read_text())["functionTimeout"].split(":")
    )
    assert 3600 * hours + 60 * minutes + seconds > LONGEST_CALL_SECONDS == PATIENT_SECONDS + WAIT_SECONDS


async def nothing() -> None:
    """All is well."""


def test_one_aggregate_that_hangs_is_set_aside_in_seconds_and_its_next_events_at_once() -> None:
    """In virtual time; the others of its session are handled before, between and after."""
    records, loop, applied = FakeSetAside(), Loop(), dict[str, float]()

    async def handle(received: Event) -> None:
        if received.aggregate == KEY:
            await asyncio.Event().wait()
        applied[received.id] = loop.time()

    async def session() -> None:
        receive = Receiver(read, handle, records, lambda: NOON, loop.time, check=nothing).receive
        for number, sequence in enumerate((1, 2, 3)):
            await receive(delivery(event(sequence), 2 * number))
            await receive(delivery(event(sequence, key=AggregateKey("thing", "8")), 2 * number + 1))

    loop.run(session())
    assert [round(at) for at in applied.values()] == [5, 5, 5]
    assert [(each.sequence, each.state, each.aggregate) for each in records.records.values()] == [
        (sequence, RecordState.WAITING, KEY) for sequence in (1, 2, 3)
    ]


async def test_what_looks_like_an_outage_and_hits_one_aggregate_alone_is_set_aside_after_some_seconds() -> (
    None
):
    records, clock = FakeSetAside(), FakeTime()
    await replace(receiver(away, records, clock), check=nothing).receive(delivery(event(1)))
    assert clock.now == HOLD_SECONDS
    assert [each.reason for each in records.records.values()] == ["the store is away"]


async def test_each_wait_moves_the_clock_whenever_the_call_began() -> None:
    """Sums of floats: a wait that was too short to be seen was waited again and again."""
    for began in range(1, 2_000):
        clock, tries = FakeTime(), Counter[float]()
        clock.now = began * 0.372137

        async def counted(received: Event, clock: FakeTime = clock, tries: Counter[float] = tries) -> None:
            tries[clock.now] += 1
            if tries[clock.now] > 1:
                pytest.fail(f"twice at {clock.now}")
            await away(received)

        await replace(receiver(counted, FakeSetAside(), clock), check=nothing).receive(delivery(event(1)))


def test_what_hits_the_check_too_hits_everybody_and_nothing_is_set_aside() -> None:
    records, clock = FakeSetAside(), FakeTime()

    async def answers_late() -> None:
        await asyncio.sleep(CHECK_SECONDS + 1)

    for check in (partial(away, event(1)), answers_late):
        loop = Loop()
        clock.now = 0
        tried = replace(receiver(away, records, clock), check=check)
        with pytest.raises(StoreAway):
            loop.run(tried.receive(delivery(event(1))))
        assert clock.now >= WAIT_SECONDS
    assert records.records == {}


async def test_an_aggregate_that_was_sick_is_tried_again_after_a_minute() -> None:
    records, clock, applied = FakeSetAside(), FakeTime(), list[int | None]()

    async def handle(received: Event) -> None:
        if received.sequence == 1:
            raise StoreAway("of its partition")
        applied.append(received.sequence)

    receive = replace(receiver(handle, records, clock), check=nothing).receive
    await receive(delivery(event(1), 1))
    await receive(delivery(event(2), 2))
    clock.now += SICK_SECONDS
    await receive(delivery(event(3), 3))
    assert applied == [3]
    assert [each.sequence for each in records.records.values()] == [1, 2]


async def test_a_hundred_sick_aggregates_do_not_hold_up_a_healthy_one() -> None:
    """Eight slots, real time; each sick aggregate has three messages, and the healthy one comes last."""
    records: FakeSetAside = FakeSetAside()
    loop = asyncio.get_running_loop()
    begun, applied_at = loop.time(), []

    async def handle(received: Event) -> None:
        await asyncio.sleep(0.01)  # a round trip to the store
        if received.aggregate.id != "healthy":
            await sick(received)
        applied_at.append(loop.time() - begun)

    sessions: asyncio.Queue[str] = asyncio.Queue()
    for name in [*(f"sick-{number}" for number in range(100)), "healthy"]:
        sessions.put_nowait(name)

    async def slot() -> None:
        while not sessions.empty():
            key = AggregateKey("thing", sessions.get_nowait())
            for sequence in (1, 2, 3):
                await receiver(handle, records).receive(delivery(event(sequence, key=key), sequence))

    await asyncio.gather(*(slot() for _ in range(8)))
    assert applied_at[0] < 5
    assert len(records.records) == 300


@pytest.mark.parametrize(("healthy_after", "told_times"), [(None, 1), (TELL_AT - 1, 0), (TELL_AT, 1)])
async def test_a_failure_that_seems_to_hit_every_aggregate_is_told_once_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture, healthy_after: int | None, told_times: int
) -> None:
    records, healthy, applied = FakeSetAside(), AggregateKey("thing", "healthy"), []

    async def handle(received: Event) -> None:
        if received.aggregate != healthy:
            await sick(received)
        applied.append(received.id)

    receive = receiver(handle, records, FakeTime()).receive
    for number in range(TELL_AT + 10):
        if number == healthy_after:
            await receive(delivery(event(1, key=healthy), 1000))
        for sequence in (1, 2):  # the second one is of no other aggregate
            key = AggregateKey("thing", f"sick-{number}")
            await receive(delivery(event(sequence, key=key), 2 * number + sequence))
    told_lines = [record.getMessage() for record in caplog.records if "for one cause" in record.getMessage()]
    assert len(told_lines) == told_times
    assert all("ZeroDivisionError in sick" in line and "johndoe" not in line for line in told_lines)
    assert len(records.records) == 2 * (TELL_AT + 10)
    assert len(applied) == (healthy_after is not None)


async def test_what_is_kept_of_those_that_fail_does_not_grow_with_them() -> None:
    made = receiver(sick, FakeSetAside(), FakeTime())
    for number in range(3 * TELL_AT):
        await made.receive(delivery(event(1, key=AggregateKey("thing", str(number))), number))
    assert [len(each) for each in made.streak.aggregates.values()] == [TELL_AT]


async def test_failures_of_several_kinds_are_not_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(received: Event) -> None:
        raise [KeyError, OSError, SourceBehind][(received.sequence or 0) % 3](f"of {received.aggregate}")

    receive = receiver(handle, FakeSetAside(), FakeTime()).receive
    for number in range(3 * (TELL_AT - 1)):
        await receive(delivery(event(number, key=AggregateKey("thing", str(number))), number))
    assert not [record for record in caplog.records if "for one cause" in record.getMessage()]


@pytest.mark.parametrize("others", [0, 1])
async def test_a_failure_whose_words_name_its_aggregate_is_told_too(
    caplog: pytest.LogCaptureFixture, others: int
) -> None:
    """Also where aggregates between them fail in another way: a bug may be met at several places."""

    async def handle(received: Event) -> None:
        if received.sequence is None:
            raise ZeroDivisionError
        raise SourceBehind(f"the source does not show event {received.sequence} of {received.aggregate}")

    receive = receiver(handle, FakeSetAside(), FakeTime()).receive
    for number in range(TELL_AT):
        await receive(delivery(event(number + 1, key=AggregateKey("thing", str(number))), number))
        for other in range(others):
            key = AggregateKey("thing", f"other {number // 2} {other}")
            await receive(delivery(event(None, key=key), 1000 + number))
    [line] = [record.getMessage() for record in caplog.records if "for one cause" in record.getMessage()]
    assert f"the source does not show event {TELL_AT} of thing {TELL_AT - 1}" in line


async def test_the_timer_applies_what_waits_in_its_order_and_once() -> None:
    source: FakeSource[tuple[int, ...]] = FakeSource()
    source.change(KEY, Found(1, (1,)))
    entries: FakeEntries[tuple[int, ...]] = FakeEntries()
    inbox, records = StateInbox(entries, source, project, lambda: NOON), FakeSetAside()
    await inbox.handle(event(1))
    receive = receiver(inbox.handle, records, FakeTime()).receive
    for sequence in (3, 2):
        if sequence == 3:
            await receive(delivery(event(3), 30))  # the gap cannot be closed: the source is restored, say
        else:
            await receiver(sick, records, FakeTime()).receive(delivery(event(2), 20))
    retrier = Retrier(read, inbox.handle, records, timedelta(days=1), lambda: NOON)
    assert await retrier.run(seconds=5) == Tried(applied=2)
    entry = entries.of(KEY)
    assert entry is not None
    assert (entry.last_sequence, entry.state, source.fences) == (3, (1, 2, 3), FAILURES + 1)
    assert await retrier.run(seconds=5) == Tried()


async def test_an_aggregate_that_is_still_sick_is_tried_once_a_run_and_counted() -> None:
    records = FakeSetAside()
    for sequence in (1, 2):
        await receiver(sick, records, FakeTime()).receive(delivery(event(sequence), sequence))
    retrier = Retrier(read, sick, records, timedelta(days=1), lambda: NOON)
    assert await retrier.run(seconds=5) == Tried(waiting=1)
    assert await retrier.run(seconds=5) == Tried(waiting=1)
    assert sorted(record.attempts for record in records.records.values()) == [0, 2]


async def test_the_timer_begins_nothing_when_its_time_is_over_and_ends_what_it_has_begun() -> None:
    """An effect that is cut off may have taken place: it would be run again, or an operator would have to look."""
    records, ended, over = FakeSetAside(), [], asyncio.Event()

    async def slow(received: Event) -> None:
        await over.wait()
        ended.append(received.id)

    others = [event(1, key=AggregateKey("thing", str(number))) for number in (8, 9)]
    for number, each in enumerate((event(1), event(2), *others)):
        await receiver(sick, records, FakeTime()).receive(delivery(each, number))
    retrier = Retrier(read, slow, records, timedelta(days=1), lambda: NOON)
    asyncio.get_running_loop().call_later(1.1, over.set)
    assert await retrier.run(seconds=1.0) == Tried(applied=1)
    assert ended == [event(1).id]
    assert await retrier.run(seconds=5) == Tried(applied=3)


async def test_a_record_whose_handling_hangs_is_left_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosmos_outbox.inbox.retrier.LONGEST_CALL_SECONDS", 0.05)
    records = FakeSetAside()

    async def hangs(_: Event) -> None:
        await asyncio.Event().wait()

    await receiver(sick, records, FakeTime()).receive(delivery(event(1)))
    assert await Retrier(read, hangs, records, timedelta(days=1), lambda: NOON).run(seconds=5) == Tried(
        waiting=1
    )
    [record] = records.records.values()
    assert (record.attempts, record.reason.split()[0]) == (1, "TimeoutError")


async def test_one_record_that_always_finds_its_store_away_does_not_keep_the_others_from_being_tried() -> (
    None
):
    """The service that an effect calls is away for one customer alone, say."""
    records, handled, others = FakeSetAside(), list[str](), [AggregateKey("thing", str(n)) for n in range(9)]

    async def away_for_some(received: Event) -> None:
        if received.aggregate in others[:2] or received.aggregate in others[4:]:
            raise StoreAway("away")
        handled.append(received.aggregate.id)

    for number, key in enumerate(others):
        await receiver(sick, records, FakeTime()).receive(delivery(event(1, key=key), number))
    retrier = Retrier(read, away_for_some, records, timedelta(days=1), lambda: NOON)
    with pytest.raises(StoreAway):
        await retrier.run(seconds=5)
    assert handled == ["2", "3"]


@pytest.mark.parametrize("events_of_each", [1, 3])
async def test_aggregates_that_always_find_their_store_away_come_after_the_others_at_the_next_runs(
    events_of_each: int,
) -> None:
    """Else the first few would be all that is ever tried, though the store answers for everybody else."""
    records, handled = FakeSetAside(), list[str]()
    keys = [AggregateKey("thing", str(number)) for number in range(AWAY_AT + 3)]

    async def away_for_the_first(received: Event) -> None:
        if received.aggregate in keys[:AWAY_AT]:
            raise StoreAway("away for this one alone")
        handled.append(received.aggregate.id)

    events = [event(sequence, key=key) for key in keys[:AWAY_AT] for sequence in range(1, events_of_each + 1)]
    events += [event(1, key=key) for key in keys[AWAY_AT:]]
    for number, each in enumerate(events):
        await receiver(sick, records, FakeTime()).receive(delivery(each, number))
    retrier = Retrier(read, away_for_the_first, records, timedelta(days=1), lambda: NOON)
    for _ in range(events_of_each + 1):
        with pytest.raises(StoreAway):
            await retrier.run(seconds=5)
    assert sorted(handled) == [key.id for key in keys[AWAY_AT:]]
    waiting = [record for record in records.records.values() if record.state is RecordState.WAITING]
    assert {record.attempts for record in waiting} == {0}, "to find the store away is no attempt"
    assert all(record.delivery for record in waiting), "and no message is lost by it"


async def test_an_aggregate_whose_event_takes_all_the_time_does_not_take_it_at_every_run() -> None:
    """It has two records: the one that is not tried, since the first hangs, must not bring it back to the front."""
    clock = FakeTime()
    records, handled, other = FakeSetAside(), list[str](), AggregateKey("thing", "8")

    async def hangs_for_one(received: Event) -> None:
        if received.aggregate == KEY:
            await clock.sleep(LONGEST_CALL_SECONDS)
            raise TimeoutError
        handled.append(received.id)

    for number, each in enumerate((event(1), event(2), event(1, key=other))):
        await receiver(sick, records, FakeTime()).receive(delivery(each, number))
    retrier = Retrier(read, hangs_for_one, records, timedelta(days=1), lambda: NOON)
    with using(replace(SYSTEM, monotonic=clock.time)):
        for _ in range(3):
            await retrier.run(seconds=40)
    assert handled == [event(1, key=other).id]


async def test_a_store_that_is_away_is_not_asked_for_every_record() -> None:
    records, asked = FakeSetAside(), list[str]()

    async def counted(received: Event) -> None:
        asked.append(received.id)
        raise StoreAway("away")

    for number in range(20):
        key = AggregateKey("thing", str(number))
        await receiver(sick, records, FakeTime()).receive(delivery(event(1, key=key), number))
    with pytest.raises(StoreAway):
        await Retrier(read, counted, records, timedelta(days=1), lambda: NOON).run(seconds=5)
    assert len(asked) == AWAY_AT


async def test_a_store_that_is_away_changes_no_record() -> None:
    records = FakeSetAside()
    await receiver(sick, records, FakeTime()).receive(delivery(event(1)))
    with pytest.raises(StoreAway):
        await Retrier(read, away, records, timedelta(days=1), lambda: NOON).run(seconds=5)
    [record] = records.records.values()
    assert (record.state, record.attempts) == (RecordState.WAITING, 0)


@pytest.mark.parametrize("after", [False, True])
async def test_a_death_between_applying_and_closing_leaves_a_record_that_is_closed_later(after: bool) -> None:
    records, handled = FakeSetAside(), []
    await receiver(sick, records, FakeTime()).receive(delivery(event(1)))

    async def handle(received: Event) -> None:
        handled.append(received)

    retrier = Retrier(read, handle, records, timedelta(days=1), lambda: NOON)
    records.faults = Faults({0: (StoreAway, after)})
    with pytest.raises(StoreAway):
        await retrier.run(seconds=5)
    await retrier.run(seconds=5)
    assert set(records.states().values()) == {RecordState.APPLIED}
    assert len(handled) == (1 if after else 2)


async def test_what_waits_for_too_long_is_closed_and_loses_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = FakeSetAside()
    await receiver(sick, records, FakeTime()).receive(delivery(event(1)))
    await receiver(well, records).receive(delivery(None))
    later = Retrier(read, sick, records, timedelta(days=1), lambda: NOON + timedelta(days=2))
    assert await later.run(seconds=5) == Tried(overdue=2)
    assert set(records.states().values()) == {RecordState.OVERDUE}
    assert not any(record.delivery for record in records.records.values())
    assert "gave up event 7/1/Changed of thing 7" in caplog.text


async def test_an_operator_applies_a_record_after_those_before_it() -> None:
    records, handled = FakeSetAside(), []
    for sequence in (1, 2, 3):
        await receiver(sick, records, FakeTime()).receive(delivery(event(sequence), sequence))
    second = next(record for record in records.records.values() if record.sequence == 2)

    async def handle(received: Event) -> None:
        handled.append(received.sequence)

    with pytest.raises(NotApplied):
        await Retrier(read, sick, records, timedelta(days=1)).apply(second.id)
    await Retrier(read, handle, records, timedelta(days=1)).apply(second.id)
    assert handled == [1, 2]
    await Retrier(read, handle, records, timedelta(days=1)).apply(second.id)
    assert handled == [1, 2], "as the first time"


async def test_a_refused_message_can_be_applied_once_the_code_can_read_it() -> None:
    records = FakeSetAside()
    await receiver(well, records).receive(delivery(None))
    [record] = records.records.values()
    with pytest.raises(NotApplied):
        await Retrier(read, well, records, timedelta(days=1)).apply(record.id)
    await Retrier(lambda _: event(1), well, records, timedelta(days=1)).apply(record.id)
    assert records.records[record.id].state is RecordState.APPLIED


async def test_an_operator_discards_a_record_with_a_reason() -> None:
    records = FakeSetAside()
    await receiver(sick, records, FakeTime()).receive(delivery(event(1)))
    [record] = records.records.values()
    retrier = Retrier(read, well, records, timedelta(days=1))
    await retrier.discard(record.id, "sent by mistake")
    assert records.records[record.id].reason == "sent by mistake"
    assert records.records[record.id].delivery is None
    await retrier.discard(record.id, "again")
    assert records.records[record.id].reason == "sent by mistake"


async def test_a_dead_letter_waits_or_is_refused_and_what_is_for_others_is_left() -> None:
    records = FakeSetAside()
    await receiver(well, records).keep(delivery(event(1)), "dead letter: MaxDeliveryCountExceeded")
    await receiver(well, records).keep(delivery(None), "dead letter: TTLExpiredException")
    await Receiver(lambda _: None, well, records).keep(delivery(event(2)), "dead letter")
    assert sorted((record.state, record.reason) for record in records.records.values()) == [
        (RecordState.REFUSED, "the message is no event (dead letter: TTLExpiredException)"),
        (RecordState.WAITING, "dead letter: MaxDeliveryCountExceeded"),
    ]


async def test_a_reason_tells_the_inboxs_own_words_and_of_other_errors_only_their_kind() -> None:
    assert told(SourceBehind("the source does not show event 3")) == "the source does not show event 3"
    with pytest.raises(ZeroDivisionError) as caught:
        await sick(event(1))
    assert "contoso" not in told(caught.value)


async def test_a_message_is_named_in_the_log_once_however_long_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(StoreAway):
        await receiver(away, FakeSetAside(), FakeTime()).receive(delivery(event(1)))
    assert caplog.text.count("received Changed 7/1/Changed of thing 7, sequence 1") == 1


@pytest.mark.parametrize("in_order", [True, False])
async def test_an_event_goes_behind_one_of_its_aggregate_that_waits(in_order: bool) -> None:
    """Only where order is the receiver's: otherwise a read model's later event closes the gap."""
    records, handled = FakeSetAside(), list[str]()

    async def first_fails(received: Event) -> None:
        handled.append(received.id)
        if received.id == event(1).id and len(handled) <= FAILURES:
            raise ZeroDivisionError

    time, other = FakeTime(), event(1, key=AggregateKey("thing", "8"))
    receiving = replace(receiver(first_fails, records, time), in_order=in_order)
    for number, each in enumerate((event(1), event(2), other)):
        await receiving.receive(delivery(each, number))
    behind = RecordState.WAITING if in_order else None
    assert (records.states().get(event(2).id), records.states().get(other.id)) == (behind, None)
    retrier = Retrier(read, first_fails, records, timedelta(days=1), lambda: NOON)
    await retrier.run(seconds=5)
    assert dict.fromkeys(handled[FAILURES:]) == dict.fromkeys(
        [other.id, event(1).id, event(2).id] if in_order else [event(2).id, other.id, event(1).id]
    )
    await receiving.receive(delivery(event(3), 3))
    assert handled[-1] == event(3).id, "nothing waits any more"
