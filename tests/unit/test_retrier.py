"""What was set aside: which record is tried, in which order, and how often; what the receiver leaves to others."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from cosmos_outbox.inbox.errors import NotApplied, NotSetAside, RecordChanged, StoreUnavailable
from cosmos_outbox.inbox.message import Delivery, Event
from cosmos_outbox.inbox.receiver import Receiver
from cosmos_outbox.inbox.retrier import AWAY_AT, Attempted, Retrier, Retries
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, FakeSetAside, delivery, event, read


class Handler:
    """Notes what it is given; what is in ``sick`` fails, what is in ``away`` finds the store away."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.sick: Sequence[Event] = ()
        self.away: set[AggregateKey] = set()

    async def __call__(self, received: Event) -> None:
        self.given.append(received.id)
        if received.aggregate in self.away:
            raise StoreUnavailable("its partition is throttled")
        if received in self.sick:
            raise ZeroDivisionError


async def records_of(*events: Event) -> FakeSetAside:
    """What was set aside, in the order in which the broker had it."""
    records = FakeSetAside()
    for number, each in enumerate(events):
        await records.add(Record.of(delivery(each, number), each, RecordState.WAITING, "r", NOON))
    return records


def retrier(handler: Handler, records: FakeSetAside) -> Retrier:
    return Retrier(read, handler, records, timedelta(days=1), lambda: NOON)


def record_id(records: FakeSetAside, of: Event) -> str:
    return next(each.id for each in records.records.values() if each.event_id == of.id)


async def test_an_aggregates_records_are_retried_by_sequence() -> None:
    """An event that was published again has a later number than those after it."""
    handler, events = Handler(), (event(3), event(1), event(2))
    records = await records_of(*events)
    assert await retrier(handler, records).run(seconds=60) == Attempted(applied=3)
    assert handler.given == [event(number).id for number in (1, 2, 3)]


async def test_events_without_a_sequence_are_tried_as_the_broker_had_them() -> None:
    handler = Handler()
    sent = [event(None, event_id=name) for name in ("c", "a", "b")]
    await retrier(handler, await records_of(*sent)).run(seconds=60)
    assert handler.given == ["c", "a", "b"]


async def test_an_operator_cannot_apply_a_record_before_a_failing_earlier_one() -> None:
    handler, records = Handler(), await records_of(event(1), event(2))
    handler.sick = [event(1)]
    with pytest.raises(NotApplied):
        await retrier(handler, records).apply(record_id(records, event(2)))
    assert handler.given == [event(1).id]
    assert records.states()[event(2).id] is RecordState.WAITING


async def test_an_operators_apply_runs_each_record_once_up_to_the_chosen_one() -> None:
    handler, records = Handler(), await records_of(event(1), event(2), event(3))
    await retrier(handler, records).apply(record_id(records, event(2)))
    assert handler.given == [event(1).id, event(2).id]
    assert records.states()[event(3).id] is RecordState.WAITING


async def test_a_refused_record_of_no_aggregate_is_applied_alone() -> None:
    handler, records = Handler(), await records_of(event(1))
    junk = delivery(None)
    await records.add(Record.of(junk, None, RecordState.REFUSED, "no event", NOON))
    with pytest.raises(NotApplied):
        await retrier(handler, records).apply(junk.record_id)
    assert handler.given == []


async def test_healthy_aggregates_between_failing_ones_show_the_store_is_there() -> None:
    handler = Handler()
    keys = [AggregateKey("thing", f"{number:03}") for number in range(4 * AWAY_AT)]
    handler.away = {*keys[::2]}
    records = await records_of(*(event(1, key=key) for key in keys))
    with pytest.raises(StoreUnavailable):
        await retrier(handler, records).run(seconds=60)
    assert len(handler.given) == len(keys), "none is left out"
    assert [*records.states().values()].count(RecordState.APPLIED) == 2 * AWAY_AT


async def test_a_message_that_was_too_large_to_keep_is_refused_for_an_operator() -> None:
    handler, records = Handler(), await records_of(event(1))
    wanted = record_id(records, event(1))
    records.records[wanted] = replace(records.records[wanted], delivery=None)
    assert await retrier(handler, records).run(seconds=60) == Attempted()
    [record] = records.records.values()
    assert (record.state, record.reason) == (RecordState.REFUSED, "the message was too large to keep")


def for_others(_: Delivery) -> Event | None:
    return None


async def test_a_message_for_others_is_done_and_neither_handled_nor_kept() -> None:
    handler, records = Handler(), FakeSetAside()
    await Receiver(for_others, handler, records).receive(delivery(event(1)))
    assert (handler.given, records.records) == ([], {})
    kept = await records_of(event(1))  # an earlier version took it for its own
    assert await replace(retrier(handler, kept), read=for_others).run(seconds=60) == Attempted(applied=1)
    assert handler.given == []


class LostAnswers(FakeSetAside):
    """Each change is written, and its answer is lost: it is not known, or the SDK repeats it and finds it changed."""

    def __init__(self, lost: type[Exception]) -> None:
        super().__init__()
        self.lost: type[Exception] | None = lost

    async def change(self, record: Record, state: RecordState, reason: str, *, attempts: int) -> None:
        await super().change(record, state, reason, attempts=attempts)
        if self.lost is not None:
            raise self.lost("on purpose")


LOST = pytest.mark.parametrize("lost", [None, StoreUnavailable, RecordChanged])


async def one_record(lost: type[Exception] | None) -> tuple[FakeSetAside, str]:
    records = FakeSetAside() if lost is None else LostAnswers(lost)
    await records.add(Record.of(delivery(event(1)), event(1), RecordState.WAITING, "r", NOON))
    return records, delivery(event(1)).record_id


async def test_what_is_closed_in_another_way_is_reported() -> None:
    handler, (records, wanted) = Handler(), await one_record(None)
    await retrier(handler, records).discard(wanted, "ours")
    with pytest.raises(NotApplied, match="discarded"):
        await retrier(handler, records).apply(wanted)
    assert handler.given == []
    applied, wanted = await one_record(None)
    await retrier(handler, applied).apply(wanted)
    with pytest.raises(RecordChanged, match="applied"):
        await retrier(handler, applied).discard(wanted, "too late")
    assert applied.states()[event(1).id] is RecordState.APPLIED


async def test_an_unknown_record_is_neither_applied_nor_discarded() -> None:
    made = retrier(Handler(), FakeSetAside())
    for call in (made.apply("0" * 32), made.discard("0" * 32, "r"), made.show("0" * 32)):
        with pytest.raises(NotSetAside):
            await call


async def test_a_record_closed_while_earlier_ones_were_retried_is_skipped() -> None:
    handler, events = Handler(), (event(1), event(2), event(3))
    records = await records_of(*events)

    async def apply(received: Event) -> None:
        await handler(received)
        if received == events[0]:
            other = await records.get(record_id(records, events[1]))
            await records.change(other, RecordState.DISCARDED, "an operator's", attempts=other.attempts)

    tried = await Retrier(read, apply, records, timedelta(days=1), lambda: NOON).run(seconds=60)
    assert tried == Attempted(applied=2)
    assert handler.given == [events[0].id, events[2].id]


@LOST
async def test_an_operator_who_applies_again_gets_the_first_answer(lost: type[Exception] | None) -> None:
    handler, (records, wanted) = Handler(), await one_record(lost)
    with suppress(StoreUnavailable):
        await retrier(handler, records).apply(wanted)
    for _ in range(2):
        await retrier(handler, records).apply(wanted)
    assert handler.given == [event(1).id], "once"
    assert records.states()[event(1).id] is RecordState.APPLIED


@LOST
async def test_another_operator_who_discards_again_gets_the_first_answer(
    lost: type[Exception] | None,
) -> None:
    records, wanted = await one_record(lost)
    with suppress(StoreUnavailable):
        await retrier(Handler(), records).discard(wanted, "the first reason")
    await retrier(Handler(), records).discard(wanted, "another reason")
    [record] = records.records.values()
    assert (record.state, record.reason) == (RecordState.DISCARDED, "the first reason")


async def test_what_is_discarded_while_it_is_applied_is_not_reported_as_applied() -> None:
    records, wanted = await one_record(None)

    async def discard_during(_: Event) -> None:
        await retrier(Handler(), records).discard(wanted, "in between")

    with pytest.raises(NotApplied):
        await Retrier(read, discard_during, records, timedelta(days=1), lambda: NOON).apply(wanted)


async def test_a_run_without_time_closes_and_tries_nothing() -> None:
    handler, records = Handler(), await records_of(event(1))
    late = replace(retrier(handler, records), now=lambda: NOON + timedelta(days=2))
    assert await late.run(seconds=0) == Attempted()
    assert await late.run(seconds=60) == Attempted(overdue=1)


HOURS = Retries(first=timedelta(minutes=1), longest=timedelta(hours=1))


@pytest.mark.parametrize(("attempts", "minutes"), [(0, 1), (1, 3), (2, 7), (5, 63), (6, 123), (7, 183)])
def test_pauses_double_up_to_the_longest(attempts: int, minutes: int) -> None:
    record = Record.of(delivery(event(1), 0), event(1), RecordState.WAITING, "r", NOON)
    assert HOURS.due(replace(record, attempts=attempts)) == NOON + timedelta(minutes=minutes)


@pytest.mark.parametrize(("first", "longest", "limit"), [(0, 1, None), (2, 1, None), (1, 1, 0), (1, 1, -1)])
def test_pauses_that_cannot_be_are_refused(first: int, longest: int, limit: int | None) -> None:
    with pytest.raises(ValueError, match="Retries"):
        Retries(
            timedelta(minutes=first),
            timedelta(minutes=longest),
            None if limit is None else timedelta(minutes=limit),
        )


async def test_one_that_is_not_due_holds_up_those_behind_it_and_no_other() -> None:
    handler, other = (
        Handler(),
        replace(event(1, event_id="other"), aggregate=AggregateKey("contact", "other")),
    )
    records, now = await records_of(event(1), event(2), other), NOON
    paced = replace(retrier(handler, records), now=lambda: now, retries=HOURS)
    handler.sick = [event(1)]
    assert await paced.run(seconds=60) == Attempted()
    now += timedelta(minutes=1)
    await paced.run(seconds=60)
    assert handler.given.count(event(1).id) == 1
    assert records.states()[other.id] is RecordState.APPLIED
    now += timedelta(minutes=1)  # the second one is due, the first is not
    await paced.run(seconds=60)
    assert handler.given.count(event(1).id) == 1
    handler.sick, now = [], now + timedelta(minutes=1)
    await paced.run(seconds=60)
    assert [each for each in handler.given if each != other.id] == [event(1).id, event(1).id, event(2).id]


async def test_an_operator_does_not_wait_for_a_pause() -> None:
    handler, records = Handler(), await records_of(event(1), event(2))
    await replace(retrier(handler, records), retries=HOURS).apply(record_id(records, event(2)))
    assert handler.given == [event(1).id, event(2).id]
