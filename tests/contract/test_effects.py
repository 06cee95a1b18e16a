"""Effects run once and in order, over the ledger in memory, in Cosmos DB and in SQLite: one suite over all."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.ledger import CosmosLedger, mark_id
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.inbox.effect import Begin, EffectMarker, EffectRules, Mark, MarkState, SeenMark, Unsure
from cosmos_outbox.inbox.effect_upkeep import EffectUpkeep
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import (
    EffectAway,
    EffectNotDone,
    EffectRunning,
    NotInTurn,
    NotSetAside,
    RecordChanged,
    StoreAway,
    Unstorable,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.ledger import Ledger
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.effects import SqliteLedger
from devstack.testing import Service
from tests.support.azure import EFFECTS, contacts_database
from tests.support.effects import RULES, Clock, FakeLedger, Outbound, inbox_over
from tests.support.inbox import KEY, NOON, Faults, event, notice
from tests.support.short_pages import shorten_pages

IDS_TTL = 600


@pytest.fixture
async def stored(cosmos_server: Service) -> AsyncIterator[CosmosLedger]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield CosmosLedger(Container(client, database.id, EFFECTS), "mails", IDS_TTL)


@pytest.fixture(params=["fake", "lagging fake", "devstack", "sqlite"])
async def ledger(
    request: pytest.FixtureRequest, stored: CosmosLedger, tmp_path: Path
) -> AsyncIterator[Ledger]:
    if request.param == "devstack":
        yield stored
    elif request.param == "sqlite":
        database = Database(tmp_path / "store.db")
        yield SqliteLedger(database, "mails", IDS_TTL)
        await database.close()
    else:
        yield FakeLedger(lag=int(request.param != "fake"))


@pytest.fixture
def outbound() -> Outbound:
    return Outbound()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inbox(ledger: Ledger, outbound: Outbound, clock: Clock) -> EffectInbox:
    return inbox_over(ledger, outbound, clock)


@pytest.fixture
def upkeep(inbox: EffectInbox) -> EffectUpkeep:
    return EffectUpkeep(inbox)


def ids(*sequences: int) -> list[str]:
    return [event(sequence).id for sequence in sequences]


async def state(ledger: Ledger, event_id: str) -> MarkState | None:
    mark = (await ledger.read(KEY, event_id, fenced=True)).mark
    return mark.state if mark else None


async def marker(ledger: Ledger) -> tuple[int | None, int, str | None]:
    found = (await ledger.read(KEY, "none", fenced=True)).marker
    return found.last, found.waiting, found.running


async def started(ledger: Ledger, sequence: int, *, held: bool = False) -> None:
    """What a process leaves that dies while an effect runs."""
    begun = event(sequence)
    seen = await ledger.read(KEY, begun.id, fenced=True)
    mark = Mark(begun.id, MarkState.STARTED, sequence, NOON, begun if held else None, by="dead")
    await ledger.write(KEY, replace(seen.marker, running=begun.id, waiting=seen.marker.waiting + held), mark)


async def test_each_effect_runs_once_in_order_whatever_comes_again(
    inbox: EffectInbox, outbound: Outbound, ledger: Ledger
) -> None:
    for sequence in (1, 1, 2, 1, 2, 3):
        await inbox.handle(event(sequence))
    assert outbound.asked == ids(1, 2, 3)
    assert await marker(ledger) == (3, 0, None)


async def test_events_out_of_sequence_wait_and_follow_in_order(
    inbox: EffectInbox, outbound: Outbound, ledger: Ledger
) -> None:
    for sequence in (4, 3, 3, 2):
        await inbox.handle(event(sequence))
    assert outbound.asked == []
    assert await marker(ledger) == (None, 3, None)
    assert [each.sequence for each in await ledger.waiting(KEY)] == [2, 3, 4]
    await inbox.handle(event(1))
    assert outbound.asked == ids(1, 2, 3, 4)
    assert await marker(ledger) == (4, 0, None)
    assert await state(ledger, event(3).id) is MarkState.HANDLED


async def test_the_effect_of_an_event_whose_time_names_no_zone_runs_and_waits_as_any_other(
    inbox: EffectInbox, outbound: Outbound, ledger: Ledger, upkeep: EffectUpkeep, clock: Clock
) -> None:
    zoneless = [replace(event(number), created_at=NOON.replace(tzinfo=None)) for number in (1, 2)]
    await inbox.handle(zoneless[1])
    clock.pass_by(days=11)  # it has waited for too long, and is looked at for giving up
    await upkeep.run(seconds=5)
    assert outbound.asked == [zoneless[1].id], "the missing place was given up"
    await inbox.handle(zoneless[0])
    assert await marker(ledger) == (2, 0, None)


async def test_a_call_that_has_taken_long_leaves_what_waits_to_the_timer(
    ledger: Ledger, outbound: Outbound, clock: Clock
) -> None:
    """Its caller ends it after a while: an effect that has begun by then may have taken place, and is run again."""
    passed = 0.0

    async def slow(received: Event) -> None:
        nonlocal passed
        passed += 20
        await outbound.effect(received)

    inbox = replace(inbox_over(ledger, outbound, clock), effect=slow, time=lambda: passed)
    for sequence in (3, 2, 1):
        await inbox.handle(event(sequence))
    assert outbound.asked == ids(1)
    await EffectUpkeep(inbox).run(seconds=60)
    assert outbound.asked == ids(1, 2, 3)


async def test_what_waits_is_kept_whole_until_its_effect_has_run(inbox: EffectInbox, ledger: Ledger) -> None:
    await inbox.handle(event(2))
    [held] = await ledger.waiting(KEY)
    assert held.waits == event(2)
    await inbox.handle(event(1))
    assert (await ledger.read(KEY, event(2).id, fenced=True)).mark is not None
    assert await ledger.waiting(KEY) == []


async def test_a_notice_has_its_place_and_no_effect(inbox: EffectInbox, outbound: Outbound) -> None:
    await inbox.handle(event(3))
    await inbox.handle(notice(2))
    await inbox.handle(event(1))
    await inbox.handle(event(2))  # it came all the same
    assert outbound.asked == ids(1, 3)


async def test_an_event_without_a_sequence_goes_by_its_id_alone(
    inbox: EffectInbox, outbound: Outbound, ledger: Ledger
) -> None:
    odd = event(None, event_id="odd")
    for each in (event(2), odd, odd, event(1), odd):
        await inbox.handle(each)
    assert outbound.asked == ["odd", *ids(1, 2)]
    assert await marker(ledger) == (2, 0, None)


async def test_a_subscriber_begins_at_one_or_where_it_is_told_to(
    ledger: Ledger, outbound: Outbound, clock: Clock
) -> None:
    for sequence in (7, 8):
        await inbox_over(ledger, outbound, clock).handle(event(sequence))
    assert outbound.asked == []
    other = AggregateKey("thing", "8")
    later = inbox_over(ledger, outbound, clock, replace(RULES, begin=Begin.WHERE_SEEN))
    for sequence in (7, 9, 6, 8):
        await later.handle(event(sequence, key=other))
    assert outbound.asked == [event(sequence, key=other).id for sequence in (7, 8, 9)]


@pytest.mark.parametrize("unsure", Unsure)
async def test_an_effect_that_surely_was_not_done_is_tried_again_by_the_timer(
    ledger: Ledger, outbound: Outbound, clock: Clock, unsure: Unsure
) -> None:
    inbox = inbox_over(ledger, outbound, clock, replace(RULES, unsure=unsure))
    outbound.raises = [EffectNotDone("the address is wrong"), EffectNotDone("still")]
    for sequence in (1, 2):
        await inbox.handle(event(sequence))
    await EffectUpkeep(inbox).run(seconds=60)
    [first, second] = await ledger.waiting(KEY)
    assert (first.failures, first.reason, second.failures) == (2, "still", 0)
    await EffectUpkeep(inbox).run(seconds=60)
    assert outbound.asked == ids(1, 1, 1, 2)
    assert await marker(ledger) == (2, 0, None)


async def test_a_service_that_is_away_is_told_to_the_receiver_and_the_event_is_kept(
    inbox: EffectInbox, outbound: Outbound, ledger: Ledger
) -> None:
    outbound.raises = [EffectAway("no answer")]
    with pytest.raises(EffectAway):
        await inbox.handle(event(1))
    assert await state(ledger, event(1).id) is MarkState.WAITING
    await inbox.handle(event(1))
    assert outbound.asked == ids(1, 1)
    assert await marker(ledger) == (1, 0, None)


async def test_after_any_other_error_it_may_have_been_done_and_the_subscriber_chooses(
    ledger: Ledger, outbound: Outbound, clock: Clock
) -> None:
    outbound.raises = [ConnectionResetError("secret")]
    once = inbox_over(ledger, outbound, clock, replace(RULES, unsure=Unsure.SET_ASIDE))
    for sequence in (1, 2, 1):
        await once.handle(event(sequence))
    assert outbound.asked == ids(1, 2), "it holds up nobody, and is not run again"
    mark = (await ledger.read(KEY, event(1).id, fenced=True)).mark
    assert mark is not None
    assert (mark.state, mark.waits, "secret" in mark.reason) == (MarkState.UNCERTAIN, None, False)

    outbound.raises = [ConnectionResetError()]
    again = inbox_over(ledger, outbound, clock)
    await again.handle(event(3))
    await EffectUpkeep(again).run(seconds=60)
    assert outbound.asked == ids(1, 2, 3, 3)


@pytest.mark.parametrize("unsure", Unsure)
async def test_a_started_effect_is_left_to_its_process_for_as_long_as_a_call_takes(
    ledger: Ledger, outbound: Outbound, clock: Clock, unsure: Unsure
) -> None:
    inbox = inbox_over(ledger, outbound, clock, replace(RULES, unsure=unsure))
    await started(ledger, 1)
    await inbox.handle(event(2))
    clock.pass_by(seconds=RULES.call_seconds - 1)
    with pytest.raises(EffectRunning):
        await inbox.handle(event(1))
    with pytest.raises(EffectRunning):
        await EffectUpkeep(inbox).discard(KEY, event(1).id, "r")
    clock.pass_by(seconds=1)
    await inbox.handle(event(1))
    assert outbound.asked == (ids(1, 2) if unsure is Unsure.RUN_AGAIN else ids(2))
    expected = MarkState.HANDLED if unsure is Unsure.RUN_AGAIN else MarkState.UNCERTAIN
    assert await state(ledger, event(1).id) is expected


async def test_a_call_that_was_slow_to_start_does_not_run_the_effect(
    ledger: Ledger, outbound: Outbound
) -> None:
    class Slow(Clock):
        def __call__(self) -> object:  # type: ignore[override]  # a clock that jumps at each look
            self.pass_by(seconds=RULES.call_seconds)
            return super().__call__()

    with pytest.raises(EffectRunning):
        await inbox_over(ledger, outbound, Slow()).handle(event(1))
    assert outbound.asked == []


async def test_an_effect_that_another_call_took_over_is_counted_once(
    ledger: Ledger, outbound: Outbound, clock: Clock
) -> None:
    """A process that was suspended while its effect ran finds that another one has recorded it."""
    other = inbox_over(ledger, outbound, clock)

    async def suspended(received: Event) -> None:
        clock.pass_by(seconds=RULES.call_seconds)
        await other.handle(received)

    inbox = replace(other, effect=suspended)  # the counts are those of both
    await inbox.handle(event(1))
    assert outbound.asked == ids(1)
    assert inbox.counts[MarkState.HANDLED] == 1
    assert await marker(ledger) == (1, 0, None)


@pytest.mark.parametrize("unsure", Unsure)
@pytest.mark.parametrize("arrived", [True, False])
async def test_an_effect_whose_start_has_lost_its_answer_is_run_by_the_same_call(
    unsure: Unsure, arrived: bool
) -> None:
    """The store is away for two looks more. Left to another call, the effect would be taken for one that was run."""
    faults = Faults({call: (StoreAway, arrived and call == 1) for call in (1, 2, 3)})
    outbound, ledger = Outbound(), FakeLedger(faults)
    inbox = inbox_over(ledger, outbound, Clock(), replace(RULES, unsure=unsure))
    await inbox.handle(event(1))
    assert outbound.asked == [event(1).id]
    seen = await ledger.read(KEY, event(1).id, fenced=True)
    assert seen.mark is not None
    assert (seen.mark.state, seen.marker.last) == (MarkState.HANDLED, 1)


@pytest.mark.parametrize("unsure", Unsure)
@pytest.mark.parametrize("raised", [None, EffectNotDone("no such address"), ZeroDivisionError()])
async def test_an_effect_whose_record_the_store_did_not_take_in_time_is_recorded_when_its_message_comes_again(
    unsure: Unsure, raised: Exception | None
) -> None:
    """The process has not died, so it knows what became of the effect, however long the store was away."""
    faults, clock = Faults(dict.fromkeys(range(2, 100_000), (StoreAway, False))), Clock()
    ledger, outbound = FakeLedger(faults), Outbound(raises=[raised])
    rules = replace(RULES, effect_seconds=0.01, call_seconds=0.03, unsure=unsure)
    inbox = inbox_over(ledger, outbound, clock, rules)
    with pytest.raises(StoreAway):
        await inbox.handle(event(1))
    faults.at = {}
    clock.pass_by(minutes=10)
    await inbox.handle(event(1))
    assert outbound.asked == [event(1).id]
    seen = await ledger.read(KEY, event(1).id, fenced=True)
    assert seen.mark is not None
    unknown = MarkState.UNCERTAIN if unsure is Unsure.SET_ASIDE else MarkState.WAITING
    after = {type(None): MarkState.HANDLED, EffectNotDone: MarkState.WAITING, ZeroDivisionError: unknown}
    assert seen.mark.state is after[type(raised)]
    assert len(inbox.owed) == 0


class TooSmall(FakeLedger):
    """It takes no mark that holds an event, as a store does whose items are smaller than the broker's messages."""

    async def write(self, key: AggregateKey, marker: EffectMarker, mark: Mark) -> SeenMark:
        if mark.waits is not None or mark.kept is not None:
            raise Unstorable("too large")
        return await super().write(key, marker, mark)


async def test_an_effect_that_failed_and_whose_event_is_too_large_to_wait_is_tried_again_with_its_message() -> (
    None
):
    """The receiver sets the message aside: it is the message that holds the event, and brings it each minute."""
    ledger, clock = TooSmall(), Clock()
    outbound = Outbound(raises=[EffectNotDone("no such address")])
    inbox = inbox_over(ledger, outbound, clock)
    for _ in range(5):
        with pytest.raises(Unstorable):
            await inbox.handle(event(1))
    assert outbound.asked == ids(1), "not five times within the receiver's attempts"
    for _ in range(2):
        clock.pass_by(minutes=10)
        with suppress(Unstorable):
            await inbox.handle(event(1))
    assert outbound.asked == ids(1, 1)
    assert (await ledger.read(KEY, event(1).id, fenced=True)).marker.last == 1
    assert len(inbox.owed) == 0


@pytest.mark.parametrize("died", [True, False])
async def test_an_effect_that_may_have_been_handled_is_told_though_its_event_is_too_large_to_keep(
    died: bool,
) -> None:
    ledger, clock = TooSmall(), Clock()
    inbox = inbox_over(
        ledger, Outbound(raises=[ZeroDivisionError()]), clock, replace(RULES, unsure=Unsure.SET_ASIDE)
    )
    if died:
        await started(ledger, 1)
        clock.pass_by(minutes=10)
    await inbox.handle(event(1))
    seen = await ledger.read(KEY, event(1).id, fenced=True)
    assert seen.mark is not None
    assert (seen.mark.state, seen.mark.kept, seen.marker.last) == (MarkState.UNCERTAIN, None, 1)


async def test_an_effect_that_another_process_took_over_is_that_ones() -> None:
    faults, clock, outbound = Faults({2: (StoreAway, False)}), Clock(), Outbound()
    ledger = FakeLedger(faults)
    mine, other = (inbox_over(ledger, outbound, clock, RULES) for _ in range(2))

    async def dies(_: float) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await replace(mine, pause=dies, owed=mine.owed).handle(event(1))
    clock.pass_by(minutes=10)
    await other.handle(event(1))
    await mine.handle(event(1))
    assert outbound.asked == [event(1).id] * 2
    assert len(mine.owed) == 0


async def test_a_store_that_does_not_tell_of_a_start_in_time_is_away() -> None:
    rules = replace(RULES, effect_seconds=0.01, call_seconds=0.03)
    faults = Faults(dict.fromkeys(range(1, 100000), (StoreAway, True)))
    outbound = Outbound()
    with pytest.raises(StoreAway):
        await inbox_over(FakeLedger(faults), outbound, Clock(), rules).handle(event(1))
    assert outbound.asked == []


async def test_an_effect_whose_record_has_lost_its_answer_is_counted_and_the_rest_follows(
    outbound: Outbound, clock: Clock
) -> None:
    ledger = FakeLedger()
    inbox = inbox_over(ledger, outbound, clock)
    await inbox.handle(event(2))
    ledger.faults = Faults({2: (StoreAway, True)})  # read, started, and then the record
    await inbox.handle(event(1))
    assert outbound.asked == ids(1, 2)
    assert inbox.counts[MarkState.HANDLED] == 2


async def test_a_notice_does_not_pass_an_effect_that_is_running_in_its_place(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, clock: Clock, upkeep: EffectUpkeep
) -> None:
    await started(ledger, 1)
    await inbox.handle(notice(1))
    await inbox.handle(event(2))
    await upkeep.run(seconds=60)
    assert outbound.asked == []
    clock.pass_by(minutes=5)
    await inbox.handle(event(1))
    await upkeep.run(seconds=60)
    assert outbound.asked == ids(1, 2)
    assert await marker(ledger) == (2, 0, None)


async def test_an_event_that_is_older_than_ids_are_kept_is_run_by_an_operator_alone(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, clock: Clock, upkeep: EffectUpkeep
) -> None:
    clock.pass_by(days=20)
    for each in (event(1), event(None, event_id="odd")):
        await inbox.handle(each)
    await upkeep.run(seconds=60)
    assert outbound.asked == []
    await upkeep.apply(KEY, "odd")
    with pytest.raises(NotSetAside):
        await upkeep.apply(KEY, "odd")
    await upkeep.apply(KEY, event(1).id)
    assert outbound.asked == ["odd", *ids(1)]
    assert await marker(ledger) == (1, 0, None)


async def test_an_effect_that_was_started_and_whose_message_comes_again_too_late_is_told_to_an_operator(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, clock: Clock
) -> None:
    """Also where it would be run again had it come in time; what comes after it goes on."""
    await started(ledger, 1)
    clock.pass_by(days=20)
    await inbox.handle(event(1))
    assert outbound.asked == []
    seen = await ledger.read(KEY, event(1).id, fenced=True)
    assert seen.mark is not None
    assert (seen.mark.state, seen.mark.kept) == (MarkState.UNCERTAIN, event(1))
    assert await marker(ledger) == (1, 0, None)


async def test_a_mark_that_is_over_keeps_nothing_of_its_event(
    inbox: EffectInbox, ledger: Ledger, upkeep: EffectUpkeep
) -> None:
    """The event holds personal data, and nobody runs it any more."""
    for sequence in (2, 1, 4):
        await inbox.handle(event(sequence))
    await upkeep.pass_over(KEY, 3, "lost")
    await upkeep.discard(KEY, event(4).id, "not wanted")
    for sequence, became in ((1, "handled"), (2, "handled"), (4, "discarded")):
        mark = (await ledger.read(KEY, event(sequence).id, fenced=True)).mark
        assert mark is not None
        assert (mark.state.value, mark.waits, mark.kept) == (became, None, None)


async def test_while_an_effect_runs_its_place_is_its_own(
    ledger: Ledger, outbound: Outbound, clock: Clock
) -> None:
    """Its notice comes meanwhile, and then an event that has no place and so takes none."""
    seen_running: list[str | None] = []

    async def look(received: Event) -> None:
        await outbound.effect(received)
        seen_running.append((await marker(ledger))[2])
        if received.sequence == 1:
            await own.handle(notice(1))
            await own.handle(event(None, event_id="odd"))

    own = replace(inbox_over(ledger, outbound, clock), effect=look)
    await own.handle(event(1))
    assert outbound.asked == [event(1).id, "odd"]
    assert seen_running == [event(1).id, event(1).id]
    assert await state(ledger, event(1).id) is MarkState.HANDLED
    assert (await marker(ledger))[0] == 1


async def test_a_call_asks_once_for_what_follows_where_it_is_not_its_turn() -> None:
    ledger, outbound = FakeLedger(), Outbound()
    inbox = inbox_over(ledger, outbound, Clock())
    await inbox.handle(event(3))
    before = ledger.faults.calls
    await inbox.handle(event(1))
    assert outbound.asked == ids(1)
    assert ledger.faults.calls - before < 10


async def test_an_operator_gives_up_only_what_is_in_turn_and_the_rest_follows(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, upkeep: EffectUpkeep
) -> None:
    for sequence in (2, 4):
        await inbox.handle(event(sequence))
    with pytest.raises(NotInTurn):
        await upkeep.discard(KEY, event(2).id, "r")
    with pytest.raises(NotInTurn):
        await upkeep.apply(KEY, event(2).id)
    for _ in range(2):
        await upkeep.pass_over(KEY, 1, "lost")
    with pytest.raises(NotInTurn):
        await upkeep.pass_over(KEY, 2, "an event waits there")
    for _ in range(2):
        await upkeep.discard(KEY, event(2).id, "not wanted")
    await upkeep.pass_over(KEY, 3, "lost")
    await upkeep.run(seconds=60)
    await inbox.handle(event(3))
    await inbox.handle(event(2))
    assert outbound.asked == ids(4)
    assert await marker(ledger) == (4, 0, None)
    with pytest.raises(NotSetAside):
        await upkeep.discard(KEY, "unknown", "r")


async def test_age_gives_up_what_is_in_the_way_and_tries_the_rest(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, clock: Clock, upkeep: EffectUpkeep
) -> None:
    outbound.raises = [None, EffectNotDone("never"), EffectNotDone("never")]
    for sequence in (1, 2, 5):
        await inbox.handle(event(sequence))
    clock.pass_by(days=9)
    await upkeep.run(seconds=60)
    outbound.asked.clear()
    outbound.raises = [EffectNotDone("not yet")]
    clock.pass_by(days=1, seconds=1)
    await inbox.handle(event(6))
    for _ in range(3):
        await upkeep.run(seconds=60)
    assert await state(ledger, event(2).id) is MarkState.DISCARDED
    assert outbound.asked == ids(5, 5, 6), "what waited for others has time of its own"
    assert await marker(ledger) == (6, 0, None)


async def test_a_run_of_the_timer_ends_in_time_also_when_many_places_are_missing(
    ledger: Ledger, clock: Clock, outbound: Outbound
) -> None:
    seconds = itertools.count()  # each look at the time takes a second
    inbox = replace(inbox_over(ledger, outbound, clock), time=lambda: float(next(seconds)))
    await inbox.handle(event(40))
    clock.pass_by(days=10, seconds=1)
    await EffectUpkeep(inbox).run(seconds=10)
    last, waiting, _ = await marker(ledger)
    assert last is not None, "some are given up, and the next run goes on"
    assert 0 < last < 10
    assert waiting == 1
    assert outbound.asked == []
    await EffectUpkeep(inbox).run(seconds=100)
    assert outbound.asked == ids(40)


async def test_a_started_effect_whose_message_never_comes_again_is_passed_with_age(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, clock: Clock, upkeep: EffectUpkeep
) -> None:
    await started(ledger, 1)
    for each in (notice(1), event(2)):
        await inbox.handle(each)
    clock.pass_by(days=10, seconds=1)
    for _ in range(2):
        await upkeep.run(seconds=60)
    assert outbound.asked == ids(2)
    assert await state(ledger, event(1).id) is MarkState.UNCERTAIN
    assert await marker(ledger) == (2, 0, None)


async def test_the_timer_runs_what_a_process_left_and_that_was_its_last_trace(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, clock: Clock, upkeep: EffectUpkeep
) -> None:
    await started(ledger, 1, held=True)
    clock.pass_by(minutes=1)
    await upkeep.run(seconds=60)
    assert outbound.asked == []
    clock.pass_by(minutes=1)
    await upkeep.run(seconds=60)
    assert outbound.asked == ids(1)
    assert await marker(ledger) == (1, 0, None)


async def test_what_cannot_be_read_of_one_aggregate_does_not_end_the_timers_run_over_the_others(
    outbound: Outbound, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """As a mark in a state that only the next version knows."""
    sick = AggregateKey("thing", "sick")

    class Newer(FakeLedger):
        async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
            if key == sick:
                raise ValueError("'johndoe@contoso.com' is not a valid MarkState")
            await asyncio.sleep(0.05)
            return await super().waiting(key)

    ledger = Newer()
    inbox = inbox_over(ledger, outbound, clock)
    keys = [sick, *(AggregateKey("thing", str(number)) for number in range(20))]
    outbound.raises = [EffectNotDone("not now") for _ in keys]
    for key in keys:
        await inbox.handle(event(1, key=key))
    outbound.asked.clear()
    await EffectUpkeep(inbox).run(seconds=10)
    assert sorted(outbound.asked) == sorted(event(1, key=key).id for key in keys[1:])
    assert "what waits of thing sick cannot be tried: ValueError" in caplog.text
    assert "johndoe" not in caplog.text


async def test_an_effect_that_is_running_holds_up_only_what_comes_after_it(
    inbox: EffectInbox, ledger: Ledger, outbound: Outbound, upkeep: EffectUpkeep
) -> None:
    await started(ledger, 1, held=True)
    await inbox.handle(event(2))
    outbound.raises = [EffectNotDone("not now")]
    await inbox.handle(event(None, event_id="loose"))
    await upkeep.run(seconds=60)
    assert outbound.asked == ["loose", "loose"]
    assert await marker(ledger) == (None, 2, event(1).id)


async def test_both_are_written_at_their_versions_or_neither(ledger: Ledger) -> None:
    mark = Mark("a", MarkState.STARTED, 1, NOON)
    first = await ledger.write(KEY, EffectMarker(), mark)
    assert first.mark is not None
    for wrong_marker, wrong_mark in (
        (EffectMarker(), Mark("b", MarkState.STARTED, 1, NOON)),
        (replace(first.marker, last=1), mark),
        (replace(first.marker, last=1), replace(mark, version="no-version")),
        (replace(first.marker, last=1, version="no-version"), first.mark),
    ):
        with pytest.raises(RecordChanged):
            await ledger.write(KEY, wrong_marker, wrong_mark)
    assert (await ledger.read(KEY, "b", fenced=True)).mark is None
    assert await ledger.read(KEY, "a", fenced=True) == first
    await ledger.write(KEY, replace(first.marker, last=1), replace(first.mark, state=MarkState.HANDLED))


async def test_what_is_over_expires_and_what_waits_does_not(stored: CosmosLedger, clock: Clock) -> None:
    inbox = inbox_over(stored, Outbound(), clock)
    for sequence in (1, 3):
        await inbox.handle(event(sequence))
    partition = stored._partition(KEY)
    ttls = {}
    for name in ("marker", mark_id(event(1).id), mark_id(event(3).id)):
        item = await stored.container.read(name, partition)
        assert item is not None
        ttls[name] = item["ttl"]
    assert [*ttls.values()] == [-1, IDS_TTL, -1]


@pytest.mark.parametrize("at_once", [1, 2])
async def test_aggregates_that_wait_for_long_do_not_hide_the_others(
    stored: CosmosLedger, outbound: Outbound, clock: Clock, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """What waits for a missing event is not written, so it stays the oldest in the list."""
    monkeypatch.setattr("cosmos_outbox.cosmos.inbox.ledger._AGGREGATES_AT_ONCE", at_once)
    inbox = inbox_over(stored, outbound, clock)
    for number in range(3):
        if number:
            await asyncio.sleep(1.01)  # the store's times are in seconds
        await inbox.handle(event(2, key=AggregateKey("thing", str(number))))
    assert [each.id async for each in stored.aggregates()] == ["0", "1", "2"]


async def test_of_many_aggregates_that_wait_since_one_second_none_is_left_out(
    stored: CosmosLedger, outbound: Outbound, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.cosmos.inbox.ledger._AGGREGATES_AT_ONCE", 3)
    inbox = inbox_over(stored, outbound, clock)
    await asyncio.sleep(1 - time.time() % 1)  # the store's times are in seconds: all of these are in one
    keys = {AggregateKey("thing", str(number)) for number in range(11)}
    await asyncio.gather(*(inbox.handle(event(2, key=key)) for key in keys))
    found = [key async for key in stored.aggregates()]
    assert sorted(found) == sorted(keys)


async def test_a_page_of_the_store_that_ends_early_is_not_the_end_of_what_waits(
    stored: CosmosLedger, outbound: Outbound, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = inbox_over(stored, outbound, clock)
    keys = {AggregateKey("thing", str(number)) for number in range(5)}
    for key in keys:
        await inbox.handle(event(2, key=key))
    for sequence in (3, 4, 5):
        await inbox.handle(event(sequence, key=KEY))
    shorten_pages(monkeypatch)
    assert {key async for key in stored.aggregates()} == {*keys, KEY}
    assert [mark.sequence for mark in await stored.waiting(KEY)] == [3, 4, 5]


async def test_subscribers_of_one_container_know_nothing_of_each_other(
    stored: CosmosLedger, clock: Clock
) -> None:
    other, outbound = replace(stored, subscriber="payments"), Outbound()
    await inbox_over(stored, outbound, clock).handle(event(2))
    assert [key async for key in stored.aggregates()] == [KEY]
    assert [key async for key in other.aggregates()] == []
    await inbox_over(other, outbound, clock).handle(event(1))
    assert outbound.asked == ids(1)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ids_are_kept_for": timedelta(days=20)}, "keep ids longer"),
        ({"waits_at_most": timedelta(days=20)}, "add the limits up"),
        ({"effect_seconds": 60.0}, "enough time"),
    ],
)
def test_limits_that_do_not_fit_are_refused_at_start(changed: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EffectRules(**{**vars(RULES), **changed})


@pytest.mark.needs_a_socket("a server that answers as it is told")
@pytest.mark.parametrize(
    ("kind", "error"), [(Kind.INVALID, Unstorable), (Kind.TOO_LARGE, Unstorable), (Kind.DENIED, StoreAway)]
)
async def test_what_the_store_refuses_hits_one_event_and_what_it_cannot_do_hits_all(
    stored: CosmosLedger,
    outbound: Outbound,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    error: type[Exception],
) -> None:
    async def refused(*_: object) -> None:
        raise StoreFailed(Failure(kind, "refused"))

    monkeypatch.setattr(stored.container, "execute", refused)
    rules = replace(RULES, effect_seconds=0.01, call_seconds=0.03)
    with pytest.raises(error):
        await inbox_over(stored, outbound, clock, rules).handle(event(1))
    assert outbound.asked == []
