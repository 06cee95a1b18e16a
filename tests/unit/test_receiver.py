"""Failing well: what hits everybody is waited for, what hits one aggregate makes room, what can never be is kept."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.inbox.errors import NotApplied, SourceBehind, StoreUnavailable, reason_of
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.read_model import StateInbox
from cosmos_outbox.inbox.receiver import (
    CHECK_SECONDS,
    FAILURES,
    LONGEST_CALL_SECONDS,
    PATIENT_SECONDS,
    WAIT_SECONDS,
    Receiver,
)
from cosmos_outbox.inbox.retrier import Attempted, Retrier
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
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

PERSONAL = "johndoe@contoso.com"


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
    raise StoreUnavailable("the store is away")


async def sick(_: Event) -> None:
    raise ZeroDivisionError(PERSONAL)


async def well(_: Event) -> None:
    pass


async def test_nothing_is_raised_without_having_waited() -> None:
    clock = FakeTime()
    with pytest.raises(StoreUnavailable):
        await receiver(away, FakeSetAside(), clock).receive(delivery(event(1)))
    assert 30 <= clock.now <= 60


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ZeroDivisionError, "ZeroDivisionError in run"), (asyncio.CancelledError, "CallEnded")],
)
async def test_a_bug_in_the_adapter_of_the_store_is_waited_for_too(
    error: type[BaseException], reason: str
) -> None:
    """Raised at once, the message would use up its deliveries, and a worker would end for it."""
    clock, records = FakeTime(), FakeSetAside(Faults(dict.fromkeys(range(1_000), (error, False))))
    with pytest.raises(StoreUnavailable, match=f"a bug: {reason}"):
        await receiver(sick, records, clock).receive(delivery(event(1)))
    assert clock.now >= WAIT_SECONDS


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


async def awaits_a_cancelled_task() -> None:
    task = asyncio.create_task(asyncio.sleep(1))
    task.cancel()
    await task


async def exits() -> None:
    sys.exit("no mail server")


async def interrupts() -> None:
    raise BaseExceptionGroup("two at once", [KeyboardInterrupt(), ValueError()])


@pytest.mark.parametrize("fails", [awaits_a_cancelled_task, exits, interrupts])
async def test_what_is_no_exception_is_the_failure_of_its_message(
    fails: Callable[[], Awaitable[None]],
) -> None:
    clock, records = FakeTime(), FakeSetAside()

    async def handle(_: Event) -> None:
        await fails()

    await receiver(handle, records, clock).receive(delivery(event(1)))
    [record] = records.records.values()
    assert record.state is RecordState.WAITING
    assert record.reason.startswith("CallEnded")


async def test_a_cancelled_call_is_cancelled() -> None:
    records, begun = FakeSetAside(), asyncio.Event()

    async def handle(_: Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(receiver(handle, records).receive(delivery(event(1))))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert records.records == {}


async def test_a_waiting_aggregates_next_event_is_set_aside_at_its_first_failure() -> None:
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


async def test_a_redelivery_keeps_its_record_and_another_message_gets_its_own() -> None:
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


async def test_a_call_that_hangs_ends_before_the_host_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cosmos_outbox.inbox.receiver.PATIENT_SECONDS", 0.05)
    clock = FakeTime()

    async def hangs(_: Event) -> None:
        clock.now += 40
        await asyncio.Event().wait()

    with pytest.raises(StoreUnavailable, match="slowly"):
        await receiver(hangs, FakeSetAside(), clock).receive(delivery(event(1)))
    hours, minutes, seconds = map(
        int, json.loads((ROOT / "host.json").read_text())["functionTimeout"].split(":")
    )
    assert 3600 * hours + 60 * minutes + seconds > LONGEST_CALL_SECONDS == PATIENT_SECONDS + WAIT_SECONDS


async def nothing() -> None:
    """All is well."""


def test_a_hanging_aggregate_is_set_aside_and_its_next_events_at_once() -> None:
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


def test_what_hits_the_check_too_hits_everybody_and_nothing_is_set_aside() -> None:
    records, clock = FakeSetAside(), FakeTime()

    async def answers_late() -> None:
        await asyncio.sleep(CHECK_SECONDS + 1)

    for check in (partial(away, event(1)), answers_late):
        loop = Loop()
        clock.now = 0
        tried = replace(receiver(away, records, clock), check=check)
        with pytest.raises(StoreUnavailable):
            loop.run(tried.receive(delivery(event(1))))
        assert clock.now >= WAIT_SECONDS
    assert records.records == {}


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
    assert await retrier.run(seconds=5) == Attempted(applied=2)
    entry = entries.of(KEY)
    assert entry is not None
    assert (entry.last_sequence, entry.state, source.consistent_reads) == (3, (1, 2, 3), FAILURES + 1)
    assert await retrier.run(seconds=5) == Attempted()


@pytest.mark.parametrize("after", [False, True])
async def test_a_record_is_closed_after_a_death_between_applying_and_closing(after: bool) -> None:
    records, handled = FakeSetAside(), []
    await receiver(sick, records, FakeTime()).receive(delivery(event(1)))

    async def handle(received: Event) -> None:
        handled.append(received)

    retrier = Retrier(read, handle, records, timedelta(days=1), lambda: NOON)
    records.faults = Faults({0: (StoreUnavailable, after)})
    with pytest.raises(StoreUnavailable):
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
    assert await later.run(seconds=5) == Attempted(overdue=2)
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


async def test_a_reason_quotes_the_inboxs_errors_and_names_others_by_class_only() -> None:
    assert reason_of(SourceBehind("the source does not show event 3")) == "the source does not show event 3"
    with pytest.raises(ZeroDivisionError) as caught:
        await sick(event(1))
    assert "contoso" not in reason_of(caught.value)


def test_a_reason_names_the_innermost_line_of_the_users_own_code() -> None:
    """Not the library that it called, and without the text of the error, which quotes the data."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(PERSONAL)
    line = caught.traceback[0].lineno + 1
    where = f"test_a_reason_names_the_innermost_line_of_the_users_own_code (unit/test_receiver.py:{line})"
    assert reason_of(caught.value) == f"JSONDecodeError in {where}: json.loads(PERSONAL)"
