"""What the relay and the subscriber count: each metric of docs/operate/metrics.md that needs no server."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusServerBusyError

from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.read_model import StateInbox
from cosmos_outbox.inbox.receiver import Handle, Receiver
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.operations import subscriber
from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus, report
from cosmos_outbox.outbox.errors import NotDelivered
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.servicebus.senders import Limits
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support import inbox
from tests.support.feed import contact_id, event_document, poison_document, read
from tests.support.memory import committed
from tests.support.publishing import event as publishable
from tests.support.publishing import publish
from tests.support.telemetry import Recorded, recording

SUBSCRIPTION = {"messaging.destination.subscription.name": "s"}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    for each in (subscriber._set_aside,):  # other tests of this process have subscribers too
        monkeypatch.setattr(each, "_read", {})
    with recording() as found:
        yield found


def event(contact: str, sequence: int, *, text: str = "") -> OutboxEvent:
    found = read(event_document(contact, sequence, text=text))
    assert isinstance(found, OutboxEvent)
    return found


def relay(publisher: BusPublisher, lot: CosmosParkingLot) -> Relay:
    return Relay(publisher, lot, committed(lot))


async def test_the_age_of_each_event_at_its_acceptance_is_measured(
    recorded: Recorded, lot: CosmosParkingLot
) -> None:
    now = event("a", 1).created_at + timedelta(seconds=3)
    no_zone = replace(event("b", 1), created_at=datetime(2020, 1, 1))  # noqa: DTZ001 - as others may have stored it
    with using(replace(SYSTEM, now=lambda: now)):
        await relay(BusPublisher(), lot).forward([event("a", 1), event("a", 2), no_zone])
    assert recorded.points("outbox.commit_to_accepted") == [({}, 2)]
    assert recorded.measured("outbox.commit_to_accepted") == 6.0


async def test_an_accepted_event_that_comes_again_is_counted(
    recorded: Recorded, lot: CosmosParkingLot
) -> None:
    one = relay(BusPublisher(fail_for={contact_id("b")}), lot)
    for _ in range(2):
        with pytest.raises(NotDelivered):
            await one.forward([event("a", 1), event("a", 2), event("b", 1)])
    assert recorded.points("outbox.events.duplicates") == [({}, 2)]


async def test_what_is_parked_counts_once_however_often_its_page_comes(
    recorded: Recorded, lot: CosmosParkingLot
) -> None:
    parking = relay(BusPublisher(fail_for={contact_id("b")}, limit=150), lot)
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


class Topic:
    """Stands in for the senders, of which it is one."""

    def __init__(self, *answers: BaseException | None, links: Sequence[BaseException | None] = ()) -> None:
        self.answers = [*answers]
        self.links = [*links]

    async def limits(self) -> Limits:
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


async def test_sends_are_measured_and_failed_ones_counted_by_their_error(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = ServiceBusPublisher(
        cast(ServiceBusClient, None), "events", service=CloudEvents("/t"), partitioned=False, senders=3
    )
    monkeypatch.setattr(publisher, "_senders", Topic(ServiceBusServerBusyError(message="johndoe"), None))
    for _ in range(2):
        await publish(publisher, [publishable("a", 1), publishable("a", 2)], [publishable("b", 1)])
    sends = {
        "messaging.system": "servicebus",
        "messaging.operation.name": "send",
        "messaging.destination.name": "events",
    }
    failed = sends | {"error.type": "ServiceBusServerBusyError"}
    assert recorded.points("messaging.client.sent.messages") == [(failed, 3), (sends, 3)]
    assert recorded.points("messaging.client.operation.duration") == [(failed, 1), (sends, 1)]
    assert 0.02 <= recorded.measured("messaging.client.operation.duration") < 30
    assert recorded.points("outbox.batch.events") == [({}, 1)]
    assert recorded.measured("outbox.batch.events") == 3


def test_the_gauges_of_the_relay_are_reported_as_they_were_set(recorded: Recorded) -> None:
    one = LeaseStatus("0", "o", 12, 61, 0.25)
    report(RelayStatus([one, LeaseStatus("1", None, 0, None, 0.0)], [], Counter()))
    values = [12, 61, 0.25]
    names = ("backlog", "oldest_waiting", "ttl_used")
    assert [recorded.gauge(f"outbox.relay.{name}") for name in names] == values


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
    raise StoreUnavailable("the store is away")


async def sick(_: Event) -> None:
    raise ZeroDivisionError


def outcomes(recorded: Recorded) -> dict[str, float]:
    points = recorded.points("outbox.inbox.events")
    assert all(attributes.items() >= SUBSCRIPTION.items() for attributes, _ in points)
    assert all(set(attributes) == {*SUBSCRIPTION, "outbox.outcome"} for attributes, _ in points)
    return {attributes["outbox.outcome"]: value for attributes, value in points}


async def test_outcomes_of_a_read_models_events_are_counted_and_ages_measured(recorded: Recorded) -> None:
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


async def test_what_is_set_aside_refused_or_waits_is_counted(recorded: Recorded) -> None:
    await receiver(sick).receive(inbox.delivery(inbox.event(1)))
    await receiver(sick).receive(inbox.delivery(None))
    with pytest.raises(StoreUnavailable):
        await receiver(away).receive(inbox.delivery(inbox.event(1)))
    await receiver(sick).keep(inbox.delivery(inbox.event(2), 2), "a dead letter")
    assert outcomes(recorded) == {"set_aside": 2, "refused": 1, "waiting": 1}
