"""One suite over every transport, each judged by what it declares: in order, once; what can never be sent is named."""

import asyncio
import contextlib

import pytest
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError

from cosmos_outbox.cosmos.relay.pages import VerifiedPage
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.outbox.errors import FailureReason, NotDelivered
from cosmos_outbox.outbox.feed import by_aggregate
from cosmos_outbox.outbox.publisher import Accepted, CloudEvents, Refused, Unknown
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from tests.contract.conftest import Broker, ServiceBusBroker
from tests.support.memory import committed
from tests.support.publishing import event, publish


async def received(broker: Broker, contact: str, count: int) -> list[str]:
    """What an inbox makes of it, which has to do what the transport does not: each once, in order."""
    found, declared = await broker.received(contact, count), broker.publisher.guarantees
    if not declared.deduplicates:
        found = list(dict.fromkeys(found))
    return found if declared.ordered else sorted(found, key=lambda one: int(one.rpartition("-")[2]))


async def test_events_arrive_in_the_order_given(broker: Broker) -> None:
    events = [event("a", sequence) for sequence in range(1, 31)]
    assert await publish(broker.publisher, events) == [Accepted()]
    assert await received(broker, "a", 30) == [f"a-{sequence}" for sequence in range(1, 31)]


async def test_an_event_that_is_sent_again_arrives_once(broker: Broker) -> None:
    await publish(broker.publisher, [event("a", 1), event("a", 2)])
    await publish(broker.publisher, [event("a", 1), event("a", 2), event("a", 3)])
    assert await received(broker, "a", 3) == ["a-1", "a-2", "a-3"]


async def test_more_than_one_batch_holds_arrives_in_order(broker: Broker) -> None:
    events = [event("a", sequence, "x" * broker.much) for sequence in range(1, 8)]
    assert await publish(broker.publisher, events) == [Accepted()]
    assert await received(broker, "a", 7) == [f"a-{sequence}" for sequence in range(1, 8)]


@pytest.mark.parametrize("large", [1, 2, 3])
async def test_sending_stops_at_the_first_event_that_is_too_large(broker: Broker, large: int) -> None:
    events = [event("a", sequence) for sequence in range(1, 4)]
    events[large - 1] = event("a", large, "x" * 300_000)

    [outcome] = await publish(broker.publisher, events)

    assert isinstance(outcome, Refused)
    assert outcome.accepted == large - 1
    assert await received(broker, "a", large - 1) == [f"a-{sequence}" for sequence in range(1, large)]


async def test_what_does_not_exist_makes_events_wait(broker: Broker) -> None:
    async with broker.missing() as publisher:
        [outcome] = await publish(publisher, [event("a", 1), event("a", 2)])
    assert isinstance(outcome, Unknown)
    assert (outcome.accepted, outcome.why) == (0, FailureReason.BROKER_REFUSES)
    assert broker.absent in outcome.reason


async def test_a_broker_that_is_not_there_makes_events_wait(broker: Broker) -> None:
    """All of the page: nothing more of it is tried."""
    async with broker.away() as publisher:
        outcomes = await publish(publisher, *([event(f"a{number}", 1)] for number in range(40)))
    for outcome in outcomes:
        assert isinstance(outcome, Unknown)
        assert (outcome.accepted, outcome.why) == (0, FailureReason.BROKER_AWAY)
        assert "cannot be reached" in outcome.reason


def one_by_one(broker: ServiceBusBroker) -> ServiceBusPublisher:
    """As for a partitioned topic: each message is a send of its own."""
    return ServiceBusPublisher(
        broker.client, broker.topic.name, service=CloudEvents("/test"), partitioned=True, senders=6
    )


async def test_one_at_a_time_arrives_in_order_too(servicebus_broker: ServiceBusBroker) -> None:
    single = one_by_one(servicebus_broker)
    events = [event("a", 1), event("a", 2), event("a", 3, "x" * 300_000), event("a", 4)]
    [outcome] = await publish(single, events)
    await single.close()
    assert isinstance(outcome, Refused)
    assert outcome.accepted == 2
    assert await servicebus_broker.received("a", 2) == ["a-1", "a-2"]


async def test_a_page_has_an_outcome_for_each_aggregate_in_its_order(broker: Broker) -> None:
    """One of them is refused from its second event on: the others do not wait for it."""
    groups = [[event(f"a{number}", 1), event(f"a{number}", 2)] for number in range(9)]
    groups[2][1] = event("a2", 2, "x" * 300_000)
    outcomes = await publish(broker.publisher, *groups)
    assert [type(outcome) for outcome in outcomes] == [
        Refused if number == 2 else Accepted for number in range(len(groups))
    ]
    assert await received(broker, "a2", 1) == ["a2-1"]
    assert await received(broker, "a8", 2) == ["a8-1", "a8-2"]


async def test_a_failure_has_the_number_accepted_before_it(
    servicebus_broker: ServiceBusBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ServiceBusSender.send_messages
    calls = iter([send, send])

    async def third_fails(self: ServiceBusSender, *arguments: object, **options: object) -> None:
        call = next(calls, None)
        if call is None:
            raise ServiceBusConnectionError
        await call(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(ServiceBusSender, "send_messages", third_fails)
    [outcome] = await publish(
        servicebus_broker.publisher, [event("a", sequence, "x" * 150_000) for sequence in range(1, 5)]
    )
    assert isinstance(outcome, Unknown)
    assert outcome.accepted == 2
    monkeypatch.undo()
    assert await servicebus_broker.received("a", 2) == ["a-1", "a-2"]


async def test_nothing_is_sent_when_the_time_is_over(broker: Broker) -> None:
    await publish(broker.publisher, [event("a", 1)])
    [outcome] = await publish(broker.publisher, [event("a", 2)], within=-1)
    assert isinstance(outcome, Unknown)
    assert outcome.accepted == 0
    assert await received(broker, "a", 1) == ["a-1"]


async def test_a_page_slower_than_its_blocks_validity_is_sent_in_attempts(
    servicebus_broker: ServiceBusBroker, lot: CosmosParkingLot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt begins behind what the topic has: else a slow topic would get the same beginning for ever."""
    send = ServiceBusSender.send_messages

    async def slow(self: ServiceBusSender, *arguments: object, **options: object) -> None:
        await asyncio.sleep(0.3)
        await send(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(ServiceBusSender, "send_messages", slow)
    single = one_by_one(servicebus_broker)
    relay = Relay(single, lot, committed(lot), reading_seconds=1.5)
    events, attempts = [event("a", sequence) for sequence in range(1, 9)], 0
    for attempt in range(1, 21):
        attempts = attempt
        with contextlib.suppress(NotDelivered):
            await relay.forward_committed(VerifiedPage(events, by_aggregate(events)))
            break
    await single.close()
    assert 1 < attempts < 20
    assert await servicebus_broker.received("a", 8) == [f"a-{sequence}" for sequence in range(1, 9)]
