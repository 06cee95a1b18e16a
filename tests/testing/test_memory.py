"""In a user's hands: stored with its events or not at all, and received as the deployed service receives."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox import Origin, Receipt, Service
from cosmos_outbox.cosmos.aggregates.aggregates import ATTEMPTS
from cosmos_outbox.errors import (
    ConcurrentChange,
    EffectRejected,
    EffectUnavailable,
    OutcomeUnknown,
    Throttled,
    Unavailable,
)
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.message import message_from_event
from cosmos_outbox.testing import InMemory, Message, NotInMemory, in_memory, message
from cosmos_outbox.testing.messages import message_of
from tests.testing import bookings
from tests.testing.bookings import Booking, Row, board, mail, service

ORIGIN = Origin("request-1")


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    bookings.mailed.clear()
    bookings.answers.clear()
    async with in_memory(service) as made:
        yield made


async def booked(title: str = "A table") -> Receipt[Booking]:
    return await service().aggregates.create(Booking.create(title), ORIGIN)


async def resized(booking: Booking, seats: int, **more: Any) -> Receipt[Booking]:
    return await service().aggregates.change(
        Booking, booking.aggregate_id, lambda found: found.resize(seats), ORIGIN, **more
    )


def events_of(memory: InMemory) -> list[tuple[str, int | None]]:
    return [(event.action, event.sequence) for event in memory.events]


async def test_a_change_is_stored_with_its_events_in_order(memory: InMemory) -> None:
    booking = (await booked()).aggregate
    receipt = await resized(booking, 4)
    assert events_of(memory) == [("BookingCreated", 1), ("SeatsChanged", 2)]
    assert (memory.events[1].correlation_id, memory.events[1].data["seats"]) == ("request-1", 4)
    found = await service().aggregates.read(Booking, booking.aggregate_id, ORIGIN)
    assert (found.aggregate.state.seats, found.etag) == (4, receipt.etag)
    document = memory.read(booking.aggregate_id, booking.aggregate_id)
    assert document is not None
    assert (document["type"], document["data"]["lastSequence"]) == ("booking", 2)


async def test_faults_come_when_they_are_asked_for(memory: InMemory) -> None:
    memory.faults.throttled(retry_after_seconds=7)
    with pytest.raises(Throttled) as caught:
        await booked()
    assert caught.value.retry_after_seconds == 7
    memory.faults.unavailable()
    with pytest.raises(Unavailable):
        await service().check()
    assert memory.events == []
    memory.faults.answer_lost(stored=False)
    with pytest.raises(OutcomeUnknown):
        await booked()
    assert memory.events == []
    booking = (await booked()).aggregate
    memory.faults.write_unavailable()
    with pytest.raises(Unavailable):
        await resized(booking, 2)
    memory.faults.overtaken(2)
    assert (await resized(booking, 3)).events == 1
    memory.faults.overtaken(ATTEMPTS)
    with pytest.raises(ConcurrentChange):
        await resized(booking, 4)
    assert memory.faults.pending == 0
    assert events_of(memory) == [("BookingCreated", 1), ("SeatsChanged", 2)]


async def test_events_reach_read_model_and_effect_once_each(memory: InMemory) -> None:
    booking = (await booked()).aggregate
    await resized(booking, 4)
    assert await memory.deliver() == []
    assert await memory.deliver() == [], "there is nothing new"
    entry = await memory.entry(board, booking.aggregate_id)
    assert entry is not None
    assert (entry.state, entry.last_sequence, entry.healed) == (Row(title="A table", seats=4), 2, 0)
    page = await service().read_model(board).listing.page([], "title", 10, None)
    assert [(each.id, each.state.seats) for each in page.items] == [(booking.aggregate_id, 4)]
    assert bookings.mailed == [event.id for event in memory.events]


async def test_what_cannot_be_read_is_set_aside_with_its_reason(memory: InMemory) -> None:
    [record] = await memory.deliver(Message(b"no JSON", {"aggregateType": "booking"}), to=board)
    assert (record.state.value, "it is no JSON" in record.reason) == ("refused", True)
    assert await memory.set_aside(mail) == []
    assert await memory.deliver(Message(b"whatever", {"aggregateType": "another"})) == []


async def test_an_effect_that_was_not_done_is_done_by_the_upkeep(memory: InMemory) -> None:
    await booked()
    bookings.answers.append(EffectRejected("the mail service refuses"))
    await memory.deliver()
    assert bookings.mailed == []
    memory.clock.pass_by(minutes=2)
    await memory.upkeep()
    assert bookings.mailed == [memory.events[0].id]


async def test_an_effect_whose_service_is_away_is_redelivered_without_a_wait(memory: InMemory) -> None:
    await booked()
    bookings.answers += [EffectUnavailable("the mail service is away")] * 50
    began = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable):
        await memory.deliver(to=mail)
    assert asyncio.get_running_loop().time() - began < 5, "the library waits 45 s, by the test's clock"
    bookings.answers.clear()
    await memory.deliver(to=mail)
    assert bookings.mailed == [memory.events[0].id]


async def test_the_tests_clock_begins_where_it_is_set() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    async with in_memory(service, now=noon) as memory:
        booking = (await booked()).aggregate
        document = memory.read(booking.aggregate_id, booking.aggregate_id)
        assert document is not None
        assert 0 <= document["_ts"] - noon.timestamp() < 60
        await service().aggregates.change(Booking, booking.aggregate_id, Booking.delete, ORIGIN)
        memory.clock.pass_by(days=40)
        assert memory.read(booking.aggregate_id, booking.aggregate_id) is None, "tombstones expire"


async def test_two_blocks_do_not_meet(memory: InMemory) -> None:
    await booked()
    async with in_memory(service) as other:
        assert other.events == []
        await booked()
        assert len(other.events) == 1
    assert len(memory.events) == 1
    assert service() is memory.wired


async def test_there_is_no_broker_in_memory_and_the_relay_says_so(memory: InMemory) -> None:
    await booked()
    with pytest.raises(NotInMemory, match="LocalAzure"):
        await service().relay.relay.forward(memory.events)


async def test_operators_views_are_those_of_the_deployed_service(memory: InMemory) -> None:
    booking = (await booked()).aggregate
    listed = await service().operator.event_list.page(booking.key, 10, None)
    assert [(each.action, each.sequence) for each in listed.items] == [("BookingCreated", 1)]


async def test_in_memory_a_service_with_names_from_the_environment_needs_none() -> None:
    nameless = Service("bookings", [Booking])
    async with in_memory(nameless, environment={"EVENT_TTL_SECONDS": "4000"}) as memory:
        await nameless().aggregates.create(Booking.create("A table"), ORIGIN)
        assert nameless().settings.event_ttl_seconds == 4000
        [event] = [each for each in memory.documents if each["type"] == "domainEvent"]
        assert event["ttl"] == 4000


async def test_a_message_of_ones_own_is_read_as_that_of_the_relay(memory: InMemory) -> None:
    booking = (await booked()).aggregate
    await memory.deliver()
    key = booking.aggregate_id
    assert (
        await memory.deliver(message(("booking", key), "SeatsChanged", 2, data={"seats": 9}), to=board) == []
    )
    entry = await memory.entry(board, key)
    assert entry is not None
    assert (entry.state, entry.last_sequence) == (Row(title="A table", seats=9), 2)


async def test_a_delivered_event_has_body_and_properties_of_the_relays_message(memory: InMemory) -> None:
    await booked()
    [event] = memory.events
    made = message_of(event)
    sent = message_from_event(event, service=CloudEvents("/bookings"), partitioned=False)
    assert (made.body, made.id) == (b"".join(sent.body), sent.message_id)
    assert sent.application_properties is not None
    for name, value in made.properties.items():
        assert sent.application_properties[name] == value
    assert made.properties.keys() == {"aggregateType", "cloudEvents_subject", "schemaVersion"}
