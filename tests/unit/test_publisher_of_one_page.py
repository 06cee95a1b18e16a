"""What a page asks of a topic: links for what is to fly, nothing after its time or of what cannot get through."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp.error import ErrorCondition, MessageException
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError, ServiceBusServerBusyError

from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Guarantees, Refused, Unknown
from cosmos_outbox.servicebus.errors import IMPOSSIBLE
from cosmos_outbox.servicebus.message import exact_size, message_from_event, size_at_most
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from tests.support.publishing import event, publish
from tests.support.virtual_time import in_virtual_time


class Batch(ServiceBusMessageBatch):
    """The SDK's, which tells what is in it."""

    def __init__(self, limit: int) -> None:
        super().__init__(max_size_in_bytes=limit)
        self.names: list[str] = []

    def add_message(self, message: Any) -> None:
        self.names.append(str(message.message_id))
        super().add_message(message)


@dataclass
class Link:
    """A sender of the SDK. It takes a second to open."""

    topic: "Topic"
    opens: bool = True
    is_open: bool = False
    is_closed: bool = False

    @property
    def _max_message_size_on_link(self) -> int:
        return self.topic.limit

    async def create_message_batch(self) -> Batch:
        if not self.is_open:
            await asyncio.sleep(1)
            if not self.opens:
                raise ServiceBusConnectionError
            self.is_open = True
        return Batch(self.topic.limit)

    async def send_messages(self, what: Batch | ServiceBusMessage, **_: object) -> None:
        self.topic.sends.append(what.names if isinstance(what, Batch) else [str(what.message_id)])
        await asyncio.sleep(0.25)
        self.topic.answer(self.topic.sends[-1])

    async def close(self) -> None:
        self.is_closed = True


def takes_all(_: list[str]) -> None: ...


@dataclass
class Topic:
    """Notes the links that were asked for, and what was sent."""

    answer: Callable[[list[str]], None] = takes_all
    links: list[Link] = field(default_factory=list)
    sends: list[list[str]] = field(default_factory=list)
    is_there: bool = True
    limit: int = 256 * 1024

    def get_topic_sender(self, _: str) -> Link:
        self.links.append(Link(self, opens=self.is_there))
        return self.links[-1]

    def publisher(self, *, partitioned: bool = False, senders: int = 6) -> ServiceBusPublisher:
        return ServiceBusPublisher(
            cast(Any, self), "topic", service=CloudEvents("/test"), partitioned=partitioned, senders=senders
        )


def page(count: int, text: str = "") -> Sequence[Sequence[Any]]:
    return [[event(f"a{number}", 1, text)] for number in range(count)]


def test_it_promises_order_and_no_doubles_and_mixes_aggregates_where_the_topic_is_not_partitioned() -> None:
    for partitioned in (False, True):
        assert Topic().publisher(partitioned=partitioned).guarantees == Guarantees(
            ordered=True, deduplicates=True, mixes_aggregates=not partitioned, largest_message_bytes=None
        )


@pytest.mark.parametrize(
    ("partitioned", "count", "text", "links"),
    [(False, 20, "", 1), (False, 3, "x" * 200_000, 3), (False, 6, "x" * 100_000, 3), (True, 4, "", 4)],
)
def test_the_first_links_are_as_many_as_the_page_has_batches(
    *, partitioned: bool, count: int, text: str, links: int
) -> None:
    """They open side by side: one that is opened only when it is wanted costs some round trips more."""

    async def story() -> None:
        topic = Topic()
        sending = asyncio.create_task(publish(topic.publisher(partitioned=partitioned), *page(count, text)))
        await asyncio.sleep(0.5)
        assert len(topic.links) == links
        assert await sending == [Accepted()] * count
        assert len(topic.sends) == (count if partitioned else links)

    in_virtual_time(story())


def test_a_page_without_an_answer_ends_at_its_time() -> None:
    async def story() -> None:
        await asyncio.sleep(1_000)
        topic = Topic()
        topic.get_topic_sender("topic").is_open = True
        loop, never = asyncio.get_running_loop(), asyncio.Event()

        async def silent(self: Link, *_: object, **__: object) -> None:
            await never.wait()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Link, "send_messages", silent)
            [outcome] = await publish(topic.publisher(), [event("a", 1)], within=5)
        assert loop.time() == pytest.approx(1_005, abs=0.1)
        assert isinstance(outcome, Unknown)
        assert (outcome.accepted, outcome.why) == (0, Hindrance.TOO_SLOW)

    in_virtual_time(story())


def test_once_the_topic_is_away_what_is_left_of_an_aggregate_opens_no_link() -> None:
    """Each opening would take its time to fail, one after the other."""

    async def story() -> None:
        topic = Topic()

        def breaks(_: list[str]) -> None:
            topic.is_there = False
            raise ServiceBusConnectionError

        topic.answer = breaks
        batches = [event("a", number, "x" * 200_000) for number in range(1, 11)]
        [outcome] = await publish(topic.publisher(), batches)
        assert isinstance(outcome, Unknown)
        assert (len(topic.sends), len(topic.links)) == (1, 1)

    in_virtual_time(story())


def test_of_a_topic_that_is_busy_the_rest_of_the_page_asks_nothing() -> None:
    async def story() -> None:
        topic = Topic()

        def busy(_: list[str]) -> None:
            raise ServiceBusServerBusyError

        topic.answer = busy
        outcomes = await publish(topic.publisher(senders=1), *page(10, "x" * 200_000))
        assert {type(outcome) for outcome in outcomes} == {Unknown}
        assert len(topic.sends) == 1

    in_virtual_time(story())


def refuses_to_mix(names: list[str]) -> None:
    if len({name.rpartition("-")[0] for name in names}) > 1:
        answer = MessageException(ErrorCondition.NotAllowed)
        raise ServiceBusError("no", error=answer, condition=ErrorCondition.NotAllowed)


def test_an_event_waits_for_the_one_before_it_where_the_topic_has_refused_to_take_that_with_others() -> None:
    async def story() -> None:
        topic = Topic(refuses_to_mix)
        first = [event("a", 1, "x" * 200_000), event("a", 2, "x" * 200_000)]
        assert await publish(topic.publisher(senders=1), first, [event("b", 1)]) == [Accepted()] * 2
        assert topic.sends == [["a-1", "b-1"], ["a-1"], ["b-1"], ["a-2"]]

    in_virtual_time(story())


def test_once_the_topic_has_refused_to_mix_no_mixed_batch_of_the_page_is_sent() -> None:
    async def story() -> None:
        topic = Topic(refuses_to_mix)
        publisher = topic.publisher(senders=1)
        assert await publish(publisher, *page(8, "x" * 100_000)) == [Accepted()] * 8
        assert [len(names) for names in topic.sends] == [2, *[1] * 8]
        assert publisher.refused_mixes == 1

    in_virtual_time(story())


def test_a_fault_of_the_code_is_raised_and_told_as_no_answer_of_the_topic() -> None:
    async def story() -> None:
        topic = Topic()

        def faulty(_: list[str]) -> None:
            raise RuntimeError("a bug")

        topic.answer = faulty
        with pytest.raises(ExceptionGroup) as caught:
            await publish(topic.publisher(), *page(2))
        assert caught.group_contains(RuntimeError, match="a bug")

    in_virtual_time(story())


def test_after_a_standstill_that_has_outlasted_the_page_nothing_more_of_it_is_sent() -> None:
    """The cancellation is still on its way then."""

    async def story() -> None:
        topic, clock = Topic(), [0.0]

        def stands_still(_: list[str]) -> None:
            clock[0] += 6

        topic.answer = stands_still
        batches = [event("a", number, "x" * 200_000) for number in (1, 2, 3)]
        with using(replace(SYSTEM, monotonic=lambda: clock[0])):
            [outcome] = await topic.publisher().publish([AggregateEvents(batches[0].aggregate, batches)], 5)
        assert isinstance(outcome, Unknown)
        assert (outcome.accepted, outcome.why) == (1, Hindrance.TOO_SLOW)
        assert topic.sends == [["a-1"]]
        assert not topic.links[0].is_closed, "it has answered"

    in_virtual_time(story())


@pytest.mark.parametrize("more", [0, 1])
def test_a_message_may_be_as_large_as_the_link_takes_and_one_that_is_larger_is_not_sent(more: int) -> None:
    large = event("a", 2, "x" * 3_000)
    size = exact_size(message_from_event(large, service=CloudEvents("/test"), partitioned=False))

    async def story() -> None:
        topic = Topic(limit=size - more)
        group = [event("a", 1), large, event("a", 3)]
        outcomes = await publish(topic.publisher(senders=1), group, [event("b", 1)])
        refused = Refused(1, "the message is larger than the topic takes")
        assert outcomes == [refused if more else Accepted(), Accepted()]
        if isinstance(outcomes[0], Refused):
            assert outcomes[0].shown_by_event, "it was measured"
        sent = {name for names in topic.sends for name in names}
        assert sent == ({"a-1", "b-1"} if more else {"a-1", "a-2", "a-3", "b-1"})
        assert len(topic.links) == 1 + more, "a limit that may be an old one is asked of a new link"

    in_virtual_time(story())


@pytest.mark.parametrize(("more", "sends"), [(300, 2), (1_000, 1)])
def test_a_batch_leaves_room_for_what_the_sdk_adds_to_it(more: int, sends: int) -> None:
    """Its own ids, as long as those of its first message: the service counts them."""
    [[one], _] = page(2, "x" * 3_000)
    size = size_at_most(message_from_event(one, service=CloudEvents("/test"), partitioned=False))

    async def story() -> None:
        topic = Topic(limit=2 * size + more)
        assert await publish(topic.publisher(), *page(2, "x" * 3_000)) == [Accepted()] * 2
        assert len(topic.sends) == sends

    in_virtual_time(story())


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_the_sdk_cannot_encode_is_refused_alone_and_costs_no_link(*, partitioned: bool) -> None:
    async def story() -> None:
        topic = Topic()
        group = [event("a", 1), replace(event("a", 2), sequence=2**70)]
        publisher = topic.publisher(partitioned=partitioned, senders=1)
        outcomes = await publish(publisher, group, [event("b", 1)])
        assert outcomes == [Refused(1, IMPOSSIBLE), Accepted()]
        assert sorted(name for names in topic.sends for name in names) == ["a-1", "b-1"]
        assert [link.is_closed for link in topic.links] == [False]
        await publisher.close()
        assert [link.is_closed for link in topic.links] == [True]

    in_virtual_time(story())


def test_that_the_client_was_closed_is_no_fault_of_a_message() -> None:
    """The SDK tells both by a ValueError."""

    async def story() -> None:
        topic = Topic()

        def closed(_: list[str]) -> None:
            raise ValueError("the client was closed")

        topic.answer = closed
        outcomes = await publish(topic.publisher(), *page(2))
        assert {type(outcome) for outcome in outcomes} == {Unknown}

    in_virtual_time(story())
