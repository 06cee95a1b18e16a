"""What the relay and the subscriber count: each metric of docs/operate/metrics.md that needs no server."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusServerBusyError

from cosmos_outbox.inbox import telemetry as of_subscribers
from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.errors import EffectNotDone, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import Handle, Receiver
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.errors import NotDelivered
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.publisher import Unknown
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.outbox.ttl_guard import TtlGuard
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.servicebus.senders import Limits
from cosmos_outbox.telemetry import gauges
from cosmos_outbox.telemetry.messaging import CANCELLED, sending
from cosmos_outbox.wiring.receiving import Queues
from cosmos_outbox.wiring.subscription import Subscriber
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support import contacts, inbox
from tests.support.contacts import NOON
from tests.support.effects import RULES, Clock, FakeRecords, Outbound, inbox_over
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.feed import contact_id, event_document, poison_document, read
from tests.support.publishing import event as publishable
from tests.support.publishing import publish
from tests.support.reactions import told
from tests.support.telemetry import Recorded, recording
from tests.unit.test_reactions import Memory

SUBSCRIPTION = {"messaging.destination.subscription.name": "s"}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    for each in (gauges._set_aside,):  # other tests of this process have subscribers too
        monkeypatch.setattr(each, "_read", {})
    with recording() as found:
        yield found


def event(contact: str, sequence: int, *, text: str = "") -> OutboxEvent:
    found = read(event_document(contact, sequence, text=text))
    assert isinstance(found, OutboxEvent)
    return found


def relay(publisher: BusPublisher, lot: FakeParkingLot | None = None) -> Relay:
    return Relay(publisher, lot or FakeParkingLot(), guard=TtlGuard(clock=lambda: NOON))


async def test_the_age_of_each_event_at_its_acceptance_is_measured(recorded: Recorded) -> None:
    now = event("a", 1).created_at + timedelta(seconds=3)
    no_zone = replace(event("b", 1), created_at=datetime(2020, 1, 1))  # noqa: DTZ001 - as others may have stored it
    with using(replace(SYSTEM, now=lambda: now)):
        await relay(BusPublisher()).forward([event("a", 1), event("a", 2), no_zone])
    assert recorded.points("outbox.commit_to_accepted") == [({}, 2)]
    assert recorded.measured("outbox.commit_to_accepted") == 6.0


async def test_what_the_relay_knows_as_accepted_is_counted_when_the_page_comes_again(
    recorded: Recorded,
) -> None:
    publisher = BusPublisher(fail_for={contact_id("b")})
    one, page = relay(publisher), [event("a", 1), event("a", 2), event("b", 1)]
    for _ in range(2):
        with pytest.raises(NotDelivered):
            await one.forward(page)
    assert recorded.points("outbox.events.duplicates") == [({}, 2)]
    assert recorded.points("outbox.commit_to_accepted") == [({}, 2)]


async def test_parked_events_are_counted_by_their_reason(recorded: Recorded) -> None:
    page = [event("a", 1), event("a", 2, text="x" * 300_000), event("a", 3), event("a", 4)]
    poison = [read(poison_document("b", 1)), read(poison_document(None, 2))]
    await relay(BusPublisher()).forward([*page, *poison])
    assert recorded.points("outbox.events.parked") == [
        ({"outbox.reason": "behind"}, 2),
        ({"outbox.reason": "invalid"}, 2),
        ({"outbox.reason": "refused"}, 1),
    ]


async def test_the_time_since_the_last_success_begins_with_the_first_page_and_grows(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(telemetry.last_success, "_at", {})
    with using(replace(SYSTEM, monotonic=lambda: clock[0])):
        assert recorded.gauge("outbox.relay.since_success") is None
        await relay(BusPublisher()).forward([event("a", 1)])
        clock[0] += 42
        assert recorded.gauge("outbox.relay.since_success") == 42.0
        with pytest.raises(NotDelivered):
            await relay(BusPublisher(fail_for={contact_id("a")})).forward([event("a", 2)])
        assert recorded.gauge("outbox.relay.since_success") == 42.0


async def test_what_is_parked_counts_once_however_often_its_page_comes(recorded: Recorded) -> None:
    parking = relay(BusPublisher(fail_for={contact_id("b")}, limit=150))
    page = [
        event("a", 1, text="x" * 200), event("a", 2), read(poison_document(None, lsn=1)), event("b", 1)
    ]  # fmt: skip
    for _ in range(3):
        with pytest.raises(NotDelivered):
            await parking.forward(page)
    assert recorded.points("outbox.events.parked") == [
        ({"outbox.reason": "behind"}, 1),
        ({"outbox.reason": "invalid"}, 1),
        ({"outbox.reason": "refused"}, 1),
    ]


async def test_parked_aggregates_are_told_with_the_age_of_the_oldest(recorded: Recorded) -> None:
    publisher, lot = BusPublisher(), FakeParkingLot()
    since = contacts.NOON
    clock = Clock()
    for name in ("a", "b"):
        clock.now = since if name == "a" else since + timedelta(minutes=5)
        await replace(relay(publisher, lot), clock=clock).forward([event(name, 1, text="x" * 300_000)])
    later = Parking(lot, publisher, clock=lambda: since + timedelta(minutes=7))
    await later.upkeep()
    assert recorded.gauge("outbox.parked.aggregates") == 2
    assert recorded.gauge("outbox.parked.oldest") == 420.0
    await Parking(FakeParkingLot(), publisher).upkeep()
    assert (recorded.gauge("outbox.parked.aggregates"), recorded.gauge("outbox.parked.oldest")) == (0, 0.0)


def test_a_reading_is_not_reported_for_ever_by_a_process_that_takes_it_no_more() -> None:
    now, reading = 0.0, telemetry.GaugeReading(90.0)
    with using(replace(SYSTEM, monotonic=lambda: now)):
        assert [*reading(None)] == []  # type: ignore[arg-type]  # the options are not looked at
        reading.set(7)
        for now, values in ((0.0, [7]), (90.0, [7]), (90.1, []), (900.0, [])):  # noqa: B007 - the clock tells it
            assert [each.value for each in reading(None)] == values  # type: ignore[arg-type]


class Topic:
    """Stands in for the senders, of which it is one."""

    def __init__(self, *answers: BaseException | None, links: Sequence[BaseException | None] = ()) -> None:
        self.answers = [*answers]
        self.links = [*links]

    async def limits(self, *, batches: int) -> Limits:
        return Limits(batch_bytes=200_000, message_bytes=200_000)

    async def take(self) -> "Topic":
        if self.links and (failure := self.links.pop(0)):
            raise failure
        return self

    async def give_back(self, _: "Topic") -> None:
        pass

    async def send(self, messages: Sequence[ServiceBusMessage]) -> None:
        await asyncio.sleep(0.01)
        if answer := self.answers.pop(0):
            raise answer


def publisher_to(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> ServiceBusPublisher:
    publisher = ServiceBusPublisher(
        cast(ServiceBusClient, None), "events", service=CloudEvents("/t"), partitioned=False, senders=3
    )
    monkeypatch.setattr(publisher, "_senders", topic)
    return publisher


async def test_messages_for_which_no_link_opens_are_failed_attempts_too(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoLimits(Topic):
        async def limits(self, *, batches: int) -> Limits:
            raise ServiceBusConnectionError

    late = publisher_to(Topic(None, links=[ServiceBusConnectionError()]), monkeypatch)
    for publisher in (late, publisher_to(NoLimits(), monkeypatch)):
        await publish(publisher, [publishable("a", 1)], [publishable("b", 1)])
    [(attributes, count)] = recorded.points("messaging.client.sent.messages")
    assert (attributes["error.type"], count) == ("ServiceBusConnectionError", 4)
    assert recorded.points("messaging.client.operation.duration") == []


async def test_what_is_not_tried_when_the_topic_is_away_opens_no_link_and_is_no_attempt(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(
        links=[ServiceBusConnectionError(), ServiceBusConnectionError(), ServiceBusConnectionError()]
    )
    large = [publishable("a", number, text="x" * 120_000) for number in (1, 2, 3)]
    [outcome] = await publish(publisher_to(topic, monkeypatch), large)
    assert isinstance(outcome, Unknown)
    assert len(topic.links) == 2, "each batch of the aggregate would wait for a link of its own"
    [(_, count)] = recorded.points("messaging.client.sent.messages")
    assert count == 1


async def test_sends_are_measured_and_counted_failed_ones_with_the_reason(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(ServiceBusServerBusyError(message="johndoe@contoso.com"), None, OSError("johndoe"), None)
    publisher = publisher_to(topic, monkeypatch)
    for _ in range(4):
        await publish(publisher, [publishable("a", 1), publishable("a", 2)], [publishable("b", 1)])

    sends = {
        "messaging.system": "servicebus",
        "messaging.operation.name": "send",
        "messaging.destination.name": "events",
    }
    assert recorded.points("messaging.client.sent.messages") == [
        (sends | {"error.type": "ServiceBusServerBusyError"}, 3),
        (sends | {"error.type": "other"}, 3),
        (sends, 6),
    ]
    assert recorded.points("messaging.client.operation.duration") == [
        (sends | {"error.type": "ServiceBusServerBusyError"}, 1),
        (sends | {"error.type": "other"}, 1),
        (sends, 2),
    ]
    assert 0.04 <= recorded.measured("messaging.client.operation.duration") < 30
    assert recorded.points("outbox.batch.events") == [({}, 2)]
    assert recorded.measured("outbox.batch.events") == 6


async def test_a_send_that_was_given_up_is_counted_as_failed(recorded: Recorded) -> None:
    async def for_ever() -> None:
        with sending("events", 2, []):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await for_ever()
    [(attributes, count)] = recorded.points("messaging.client.sent.messages")
    assert (attributes["error.type"], count) == (CANCELLED, 2)


class FakeTime:
    """A clock that only sleeping moves."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def receiver(handle: Handle, records: inbox.FakeSetAside | None = None) -> Receiver:
    clock = FakeTime()
    return Receiver(
        inbox.read,
        handle,
        records or inbox.FakeSetAside(),
        lambda: inbox.NOON,
        clock.time,
        clock.sleep,
    )


async def away(_: Event) -> None:
    raise StoreAway("the store is away")


async def sick(_: Event) -> None:
    raise ZeroDivisionError


def outcomes(recorded: Recorded) -> dict[str, float]:
    points = recorded.points("outbox.inbox.events")
    assert all(attributes.items() >= SUBSCRIPTION.items() for attributes, _ in points)
    assert all(set(attributes) == {*SUBSCRIPTION, "outbox.outcome"} for attributes, _ in points)
    return {attributes["outbox.outcome"]: value for attributes, value in points}


async def test_what_became_of_events_at_a_state_is_counted_and_their_age_measured(recorded: Recorded) -> None:
    source: inbox.FakeSource[tuple[int, ...]] = inbox.FakeSource()
    source.change(inbox.KEY, Found(1, (1,)))
    late = inbox.NOON + timedelta(seconds=2)
    state = StateInbox(inbox.FakeEntries(), source, inbox.project, lambda: late)
    handled = receiver(state.handle)
    for number, sequence in enumerate((1, 2, 2), start=1):
        await handled.receive(inbox.delivery(inbox.event(sequence), number))
    source.change(inbox.KEY, Found(5, (1, 2, 3, 4, 5)))
    await handled.receive(inbox.delivery(inbox.event(5), 4))
    await handled.receive(inbox.delivery(inbox.event(6), 5))
    await handled.receive(inbox.delivery(inbox.event(6, event_id="another"), 6))
    assert outcomes(recorded) == {"applied": 4, "duplicate": 1, "refused": 1}
    assert recorded.points("outbox.inbox.gaps_healed") == [({}, 1)]
    assert recorded.points("outbox.commit_to_applied") == [({}, 3)], "1 and 2 and 6, but not the healed one"
    assert recorded.measured("outbox.commit_to_applied") == 6.0


async def test_what_became_of_a_reactions_messages_is_counted_and_a_refusal_is_no_duplicate(
    recorded: Recorded,
) -> None:
    memory = Memory()
    handled = receiver(memory.inbox.handle)
    for message, times in ((told("h", "a"), 3), (told("closed", "b"), 2)):
        for number in range(times):
            await handled.receive(inbox.delivery(message, number))
    assert outcomes(recorded) == {"applied": 1, "duplicate": 2, "refused": 2}
    [(_, measured)] = recorded.points("outbox.commit_to_applied")
    assert measured == 1


async def test_what_is_handled_beside_a_receiver_is_of_no_subscription(recorded: Recorded) -> None:
    """Such as what an operator applies: the task of a message before it may be the same."""
    source: inbox.FakeSource[tuple[int, ...]] = inbox.FakeSource()
    source.change(inbox.KEY, Found(1, (1,)))
    state = StateInbox(inbox.FakeEntries(), source, inbox.project, lambda: inbox.NOON)
    await receiver(state.handle).receive(inbox.delivery(inbox.event(1)))
    await state.handle(inbox.event(2))
    assert recorded.points("outbox.inbox.events") == [
        (SUBSCRIPTION | {"outbox.outcome": "applied"}, 1),
        ({"outbox.outcome": "applied"}, 1),
    ]


def test_ages_at_the_relay_and_at_a_subscriber_are_counted_in_the_same_buckets() -> None:
    assert telemetry.AGES == of_subscribers.AGES


async def test_a_sweep_counts_what_was_missing_and_not_an_entry_that_only_has_another_form(
    recorded: Recorded,
) -> None:
    source, entries = inbox.FakeSource[tuple[int, ...]](), inbox.FakeEntries[tuple[int, ...]]()
    source.change(inbox.KEY, Found(1, (1,)))
    entries.written[inbox.KEY] = [Entry(1, None, None, other_form=True)]
    state = StateInbox(entries, source, inbox.project)
    await state.heal(inbox.KEY)
    assert recorded.points("outbox.inbox.gaps_healed") == []
    source.change(inbox.KEY, Found(2, (1, 2)))
    await state.heal(inbox.KEY)
    assert recorded.points("outbox.inbox.gaps_healed") == [({}, 1)]


async def test_what_is_set_aside_refused_or_waits_is_counted(recorded: Recorded) -> None:
    await receiver(sick).receive(inbox.delivery(inbox.event(1)))
    await receiver(sick).receive(inbox.delivery(None))
    with pytest.raises(StoreAway):
        await receiver(away).receive(inbox.delivery(inbox.event(1)))
    await receiver(sick).keep(inbox.delivery(inbox.event(2), 2), "a dead letter")
    assert outcomes(recorded) == {"set_aside": 2, "refused": 1, "waiting": 1}


async def test_what_became_of_effects_is_counted(recorded: Recorded) -> None:
    clock, outbound = Clock(), Outbound()
    effects = inbox_over(FakeRecords(), outbound, clock, replace(RULES, kinds=None))
    handled = receiver(effects.handle)
    for number, sequence in enumerate((1, 1, 2), start=1):
        await handled.receive(inbox.delivery(inbox.event(sequence), number))
    assert outcomes(recorded) == {"applied": 2, "duplicate": 1}
    assert recorded.points("outbox.commit_to_applied") == [({}, 2)]


async def test_an_effect_that_fails_is_counted_as_set_aside(recorded: Recorded) -> None:
    effects = inbox_over(FakeRecords(), Outbound(), Clock(), replace(RULES, kinds=None))

    async def not_done(_: Event) -> None:
        raise EffectNotDone("no such address")

    await receiver(replace(effects, effect=not_done).handle).receive(inbox.delivery(inbox.event(1)))
    assert outcomes(recorded) == {"set_aside": 1}


class NoDeadLetters:
    async def collect(self, keep: object, *, seconds: float) -> int:
        return 0


async def test_messages_that_are_set_aside_are_told_with_the_age_of_the_oldest(recorded: Recorded) -> None:
    records = inbox.FakeSetAside()
    await receiver(sick, records).receive(inbox.delivery(inbox.event(1), 1))
    await receiver(sick, records).receive(inbox.delivery(None, 2, message_id="no event"))
    later = inbox.NOON + timedelta(minutes=2)
    retrier = Retrier(inbox.read, sick, records, timedelta(days=1), lambda: later)
    queues = cast(Queues, type("Fakes", (), {"dead_letters": NoDeadLetters()}))
    watching = Subscriber("t", "s", receiver(sick, records), retrier, lambda: queues)
    await watching.watch()
    assert recorded.gauge("outbox.set_aside.messages") == 2
    assert recorded.gauge("outbox.set_aside.oldest") == 120.0
    empty = replace(watching, retrier=replace(retrier, set_aside=inbox.FakeSetAside()))
    await empty.watch()
    assert (recorded.gauge("outbox.set_aside.messages"), recorded.gauge("outbox.set_aside.oldest")) == (0, 0)
    await replace(watching, subscription="another").watch()
    await empty.watch()
    assert recorded.gauge("outbox.set_aside.messages") == 2, "a process may have several subscribers"
    await replace(empty, subscription="another").watch()
    assert recorded.gauge("outbox.set_aside.messages") == 0


def test_a_subscriber_that_reads_no_more_leaves_the_sum_of_the_others(recorded: Recorded) -> None:
    clock = [1_000.0]
    with using(replace(SYSTEM, monotonic=lambda: clock[0])):
        gauges.set_aside("ill", 5, 600.0)
        gauges.set_aside("well", 1, 60.0)
        assert (recorded.gauge("outbox.set_aside.messages"), recorded.gauge("outbox.set_aside.oldest")) == (
            6,
            600.0,
        )
        clock[0] += 60
        gauges.set_aside("well", 0, 0.0)
        assert recorded.gauge("outbox.set_aside.messages") == 5, "it was read a minute ago"
        clock[0] += 180
        gauges.set_aside("well", 0, 0.0)
        assert (recorded.gauge("outbox.set_aside.messages"), recorded.gauge("outbox.set_aside.oldest")) == (
            0,
            0.0,
        )


def test_the_gauges_of_the_relay_are_reported_as_they_were_set(recorded: Recorded) -> None:
    gauges.relay(backlog=12, oldest_waiting_seconds=61, average_waiting_seconds=20.5, ttl_used=0.25)
    names = ("backlog", "oldest_waiting", "average_waiting", "ttl_used")
    told = [recorded.gauge(f"outbox.relay.{name}") for name in names]
    assert told == [12, 61, 20.5, 0.25]
