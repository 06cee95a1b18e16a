"""Events leave per contact, by sequence; what waits is raised, what can never be sent is a value."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from application.ports import OutboxEvent, Unsendable
from application.relay import SESSIONS_AT_ONCE, Relay
from domain.errors import NotDelivered
from tests.support.contacts import NOON
from tests.support.fakes import FakePublisher


def event(contact: str, sequence: int) -> OutboxEvent:
    return OutboxEvent(
        id=f"{contact}-{sequence}",
        contact_id=contact,
        action="X",
        sequence=sequence,
        created_at=NOON,
        data={"a": 1},
    )


def per_contact(sent: list[tuple[str, str]], contact: str) -> list[str]:
    return [event_id for owner, event_id in sent if owner == contact]


async def test_each_contacts_events_are_sent_by_sequence_whatever_the_feeds_order() -> None:
    events = [event(contact, sequence) for contact in "abc" for sequence in (1, 2, 3, 10, 11)]
    random.Random(7).shuffle(events)
    publisher = FakePublisher()

    result = await Relay(publisher).forward(events)

    assert result.sent == 15
    assert result.unsendable == ()
    for contact in "abc":
        assert per_contact(publisher.sent, contact) == [f"{contact}-{n}" for n in (1, 2, 3, 10, 11)]


async def test_one_contact_that_waits_does_not_hold_up_the_others_and_the_batch_is_not_done() -> None:
    publisher = FakePublisher(fail_for={"b"})
    events = [event("a", 1), event("b", 1), event("c", 1)]
    with pytest.raises(NotDelivered, match="1 of 3 contacts"):
        await Relay(publisher).forward(events)
    assert sorted(publisher.sent) == [("a", "a-1"), ("c", "c-1")]

    publisher.fail_for.clear()
    await Relay(publisher).forward(events)
    assert sorted(publisher.sent) == [("a", "a-1"), ("b", "b-1"), ("c", "c-1")]


async def test_what_can_never_be_sent_is_told_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    broken = Unsendable("bad", "a", "it is no valid event document: data: x")
    publisher = FakePublisher()
    large = replace(event("a", 2), data={"text": "x" * 300_000})
    with caplog.at_level("INFO"):
        result = await Relay(publisher).forward([event("a", 1), broken, large, event("a", 3)])
    assert result.sent == 2
    assert [one.event_id for one in result.unsendable] == ["bad", "a-2"]
    assert [one for _, one in publisher.sent] == ["a-1", "a-3"]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2
    assert "bad" in errors[0]


async def test_an_empty_batch_is_done() -> None:
    assert (await Relay(FakePublisher()).forward([])).sent == 0


async def test_a_bug_is_not_mistaken_for_a_broker_that_is_away() -> None:
    class Broken(FakePublisher):
        async def publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Sequence[Unsendable]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Relay(Broken()).forward([event("a", 1), event("b", 1)])


async def test_contacts_are_sent_side_by_side_but_not_all_at_once() -> None:
    class Counting(FakePublisher):
        running = 0
        most = 0

        async def publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Sequence[Unsendable]:
            Counting.running += 1
            Counting.most = max(Counting.most, Counting.running)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            Counting.running -= 1
            return []

    await Relay(Counting()).forward([event(f"c{n}", 1) for n in range(40)])
    assert Counting.most == SESSIONS_AT_ONCE
