"""A replay that cannot go on keeps what was sent, gives its claim back, and tells an operator what is to be done."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from cosmos_outbox.kernel.clock import SYSTEM, monotonic, using
from cosmos_outbox.outbox.errors import (
    ConcurrentChange,
    NotDelivered,
    PreconditionFailed,
    StillUnsendable,
)
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.notice import Notice
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.parking_lot import Change, ParkedEvent
from cosmos_outbox.outbox.publisher import (
    Accepted,
    AggregateEvents,
    Failing,
    Guarantees,
    Outcome,
    Refused,
    Unknown,
)
from cosmos_outbox.outbox.replay import Replay, Replayed
from cosmos_outbox.testing.simulation.bus_publisher import ANYTHING_GOES
from tests.support.contacts import NOON
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.feed import contact_key, event_document, read
from tests.support.kept_originals import KeptOriginals

CONTACT = contact_key("a")
LATER = NOON + timedelta(hours=1)


def event(sequence: int) -> FeedEvent:
    return read(event_document("a", sequence))


def ids(*sequences: int) -> list[str]:
    return [event(sequence).id for sequence in sequences]


NOTICE = Notice(CONTACT, event(2).id, 2, NOON).id


@dataclass
class Topic:
    """Takes what it is offered, up to an event for which it has another answer."""

    stops_at: dict[str, Callable[[int], Outcome]] = field(default_factory=dict)
    """By the event's id; of how many events it has accepted before."""
    answer_seconds: float = 0.0
    taken: list[OutboxEvent] = field(default_factory=list)
    seconds_left: float = 0.0
    """For the last answer."""

    @property
    def guarantees(self) -> Guarantees:
        return replace(ANYTHING_GOES, answer_seconds=self.answer_seconds)

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        [group] = page
        self.seconds_left = until - monotonic()
        for accepted, each in enumerate(group.events):
            if answer := self.stops_at.get(each.id):
                return [answer(accepted)]
            self.taken.append(each)
        return [Accepted()]

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.taken]


def refuses(accepted: int) -> Outcome:
    return Refused(accepted, "too large")


def fails(accepted: int) -> Outcome:
    return Failing(accepted, "its receiver fails")


def is_away(accepted: int) -> Outcome:
    return Unknown(accepted, "the broker is away")


async def parked(*sequences: int, passing: bool = False) -> FakeParkingLot:
    """The first one was refused, and the others are behind it."""
    lot, events = FakeParkingLot(), [event(sequence) for sequence in sequences]
    await lot.park(Marker(CONTACT).block(events[0], "refused", [], NOON, passing=passing), events)
    return lot


def replay(lot: FakeParkingLot, topic: Topic) -> Replay:
    return Replay(lot, topic, clock=lambda: LATER)


async def test_who_loses_each_race_for_the_claim_sends_nothing_and_is_told_to_ask_again() -> None:
    lot, topic = await parked(1), Topic()

    async def others_were_faster(marker: Marker) -> Marker:
        raise PreconditionFailed("others")

    lot.store = others_were_faster  # type: ignore[method-assign]
    with pytest.raises(ConcurrentChange, match="replay again"):
        await replay(lot, topic)(CONTACT)
    assert topic.taken == []


async def test_originals_that_cannot_be_read_in_time_end_a_replay_and_its_claim() -> None:
    class Silent(KeptOriginals):
        async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
            await asyncio.Event().wait()
            raise AssertionError

    lot, topic = await parked(1), Topic()
    hasty = replace(replay(lot, topic), originals=Silent(), reading_seconds=0.01)
    async with asyncio.timeout(5):
        with pytest.raises(NotDelivered, match="in time"):
            await hasty(CONTACT)
    assert topic.taken == []
    assert lot.stored[CONTACT].replay is None
    assert await replay(lot, topic)(CONTACT) == Replayed(1, done=True)


async def test_a_broker_that_answers_late_has_its_time_after_the_originals_were_read() -> None:
    """Else it is asked again and again, and no answer is ever waited for."""
    now = 100.0

    class Slow(KeptOriginals):
        async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
            nonlocal now
            now += 4.0
            return await super().verify(events)

    lot, topic = await parked(1), Topic(answer_seconds=30.0)
    with using(replace(SYSTEM, monotonic=lambda: now)):
        await replace(replay(lot, topic), originals=Slow(), seconds=10.0)(CONTACT)
    assert topic.seconds_left >= 30.0


async def test_a_replay_sends_what_is_stored_now_whatever_was_read_for_others_before() -> None:
    lot, topic, originals = await parked(1), Topic(), KeptOriginals()
    await originals.verify([event(1)])  # by a relay whose page still waits
    originals.stored[event(1).id] = read(event_document("a", 1, text="mended"))

    await replace(replay(lot, topic), originals=originals)(CONTACT)

    assert [each.data["text"] for each in topic.taken] == ["mended"]


async def test_who_sends_an_event_after_a_replay_reads_it_anew() -> None:
    lot, topic, originals = await parked(1, 2), Topic({ids(2)[0]: refuses}), KeptOriginals()
    with pytest.raises(StillUnsendable):
        await replace(replay(lot, topic), originals=originals)(CONTACT)

    mended = originals.stored[event(1).id] = read(event_document("a", 1, text="mended"))
    assert await originals.verify([event(1)]) == [mended]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refuses, "Discard the event, or remove the reason, then replay again"),
        (fails, "It is tried again by itself; or discard the event"),
    ],
)
@pytest.mark.parametrize("answer_lost", [False, True])
async def test_an_operator_is_told_whether_an_event_needs_somebody(
    answer: Callable[[int], Outcome], told: str, answer_lost: bool
) -> None:
    lot, topic = await parked(1, 2), Topic({ids(1)[0]: answer})
    settle = lot.settle

    async def repeated(marker: Marker, delivered: Sequence[ParkedEvent], change: Change) -> Marker:
        await settle(marker, delivered, change)
        return await settle(marker, delivered, change)  # as an SDK repeats a write: it is refused

    if answer_lost:
        lot.settle = repeated  # type: ignore[method-assign]
    with pytest.raises(StillUnsendable, match=f"{told}$"):
        await replay(lot, topic)(CONTACT)
    assert topic.taken == []


@pytest.mark.parametrize(("stops_at", "attempts", "at"), [(1, 2, LATER), (2, 1, NOON)])
async def test_what_is_tried_by_itself_has_a_longer_pause_after_a_replay_that_sent_nothing(
    stops_at: int, attempts: int, at: object
) -> None:
    """The broker is away meanwhile."""
    lot, topic = await parked(1, 2, 3, passing=True), Topic({event(stops_at).id: is_away})
    with pytest.raises(NotDelivered, match="the broker is away"):
        await replay(lot, topic)(CONTACT)

    marker = lot.stored[CONTACT]
    assert marker.refusal is not None
    assert (marker.refusal.attempts, marker.refusal.at, marker.replay) == (attempts, at, None)
    topic.stops_at.clear()
    assert await replay(lot, topic)(CONTACT) == Replayed(4 - stops_at, done=True)
    assert topic.ids == ids(1, 2, 3)


async def test_a_notice_at_which_a_receiver_fails_waits_and_what_was_sent_before_it_is_sent_once() -> None:
    lot, topic = await parked(2, 3), Topic({NOTICE: fails})
    await lot.park(lot.stored[CONTACT], [event(1)])  # it came late, and has its place before them
    refused = next(each for each, _ in await lot.waiting(CONTACT, 9) if each.sequence == 2)
    await Parking(lot, topic, clock=lambda: LATER).discard(refused.id, "it will never be right")

    with pytest.raises(NotDelivered, match="a notice waits, and is tried again by itself"):
        await replay(lot, topic)(CONTACT)
    topic.stops_at.clear()
    assert await replay(lot, topic)(CONTACT) == Replayed(2, done=True), "the claim was given back"
    assert topic.ids == [ids(1)[0], NOTICE, ids(3)[0]]
