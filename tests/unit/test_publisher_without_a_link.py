"""Where no link opens, or no message can be made of an event, the caller is told of it, and so are the metrics."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.publisher import Accepted, Refused, Unknown
from cosmos_outbox.servicebus import publisher as publisher_module
from cosmos_outbox.servicebus.errors import IMPOSSIBLE
from tests.support.publishing import event, publish
from tests.support.telemetry import Recorded, recording
from tests.support.virtual_time import in_virtual_time
from tests.unit.test_publisher_of_one_page import Link, Topic, page

SENT = "messaging.client.sent.messages"
TO_THE_TOPIC = {
    "messaging.system": "servicebus", "messaging.operation.name": "send", "messaging.destination.name": "topic",
}  # fmt: skip
NO_CONNECTION = {**TO_THE_TOPIC, "error.type": "ServiceBusConnectionError"}


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as found:
        yield found


def test_a_topic_to_which_no_link_opens_is_away_for_the_whole_page(recorded: Recorded) -> None:
    async def story() -> None:
        topic = Topic(is_there=False)
        outcomes = await publish(topic.publisher(), *page(3))
        reason = "Service Bus cannot be reached (ServiceBusConnectionError)"
        assert outcomes == [Unknown(0, reason)] * 3
        assert isinstance(outcomes[0], Unknown)
        assert outcomes[0].why is Hindrance.BROKER_AWAY
        assert (len(topic.links), topic.sends) == (1, [])

    in_virtual_time(story())
    assert recorded.points(SENT) == [(NO_CONNECTION, 3)]


def test_a_batch_that_waits_for_a_link_when_the_last_one_breaks_is_given_up_with_it(
    recorded: Recorded,
) -> None:
    async def story() -> None:
        topic = Topic()

        def breaks(names: list[str]) -> None:
            if names != ["a0-1"]:
                topic.is_there = False
                raise ServiceBusConnectionError

        topic.answer = breaks
        outcomes = await publish(topic.publisher(senders=1), *page(3, "x" * 200_000))
        assert [type(outcome) for outcome in outcomes] == [Accepted, Unknown, Unknown]
        assert topic.sends == [["a0-1"], ["a1-1"]]

    in_virtual_time(story())
    assert recorded.points(SENT) == [(NO_CONNECTION, 2), (TO_THE_TOPIC, 1)]


def test_what_waits_for_a_link_when_the_publisher_is_closed_is_not_sent_behind_that() -> None:
    async def story() -> None:
        topic = Topic()
        publisher = topic.publisher(senders=1)
        sending = asyncio.create_task(publish(publisher, *page(2, "x" * 200_000)))
        await asyncio.sleep(1.1)
        assert topic.sends == [["a0-1"]], "it is under way"
        await publisher.close()
        assert [type(outcome) for outcome in await sending] == [Accepted, Unknown]
        assert (len(topic.sends), len(topic.links)) == (1, 1)

    in_virtual_time(story())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"correlation_id": "x" * 40_000}, "a property of the message is larger than 32 KB"),
        ({"id": "x" * 200}, f"{IMPOSSIBLE} (ValueError)"),
    ],
)
def test_an_event_of_which_no_message_can_be_made_stops_its_own_aggregate_behind_what_was_before_it(
    more: dict[str, Any], reason: str
) -> None:
    async def story() -> None:
        topic = Topic()
        group = [event("a", 1), replace(event("a", 2), **more), event("a", 3)]
        outcomes = await publish(topic.publisher(), group, [event("b", 1)])
        assert outcomes == [Refused(1, reason), Accepted()]
        assert topic.sends == [["a-1", "b-1"]]

    in_virtual_time(story())


@pytest.mark.parametrize(
    ("implementation", "names"),
    [(lambda: object, ["Diagnostic-Id", "traceparent"]), (lambda: None, ["traceparent"])],
)
def test_a_message_carries_the_context_of_its_event_under_each_name_that_a_tracing_sdk_would_add(
    monkeypatch: pytest.MonkeyPatch, implementation: Callable[[], object], names: list[str]
) -> None:
    """Else a subscriber would continue the trace of the relay."""
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setattr(publisher_module, "settings", SimpleNamespace(tracing_implementation=implementation))
    carried = list[dict[Any, Any]]()

    async def noted(_: Link, what: Any, **__: object) -> None:
        carried.append(what.application_properties)

    monkeypatch.setattr(Link, "send_messages", noted)

    async def story() -> None:
        assert await publish(Topic().publisher(), [replace(event("a", 1), traceparent=context)]) == [
            Accepted()
        ]

    in_virtual_time(story())
    [properties] = carried
    found = sorted(name.decode() for name, value in properties.items() if value == context)
    assert found == names


def test_a_send_is_linked_to_the_trace_of_each_event_that_has_one(recorded: Recorded) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"

    async def story() -> None:
        traced = replace(event("a", 1), traceparent=f"00-{trace}-b7ad6b7169203331-01")
        assert await publish(Topic().publisher(), [traced], [event("b", 1)]) == [Accepted()] * 2

    in_virtual_time(story())
    [span] = recorded.spans()
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [trace]
