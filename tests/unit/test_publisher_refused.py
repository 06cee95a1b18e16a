"""What a topic refuses holds up what is refused, and nothing of an aggregate overtakes it."""

import logging
from collections.abc import Callable

import pytest
from azure.servicebus._pyamqp.error import ErrorCondition, MessageException
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError, ServiceBusServerBusyError

from cosmos_outbox.outbox.publisher import Accepted, Refused, Unknown
from tests.support.publishing import event, publish
from tests.support.virtual_time import in_virtual_time
from tests.unit.test_publisher_of_one_page import Topic, page, refuses_to_mix


def test_what_was_packed_with_others_is_not_overtaken_while_the_topic_learns_to_refuse_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One batch is refused as another one, that is mixed too, waits for its sender; behind that waits a plain one."""
    large, small = "x" * 200_000, "x" * 40_000

    async def story() -> None:
        topic = Topic(refuses_to_mix)
        groups = [[event(name, 1, large), event(name, 2, large)] for name in ("a", "c")]
        groups += [[event(name, 1, small)] for name in ("b", "d", "e")]
        assert await publish(topic.publisher(senders=1), *groups) == [Accepted()] * 5
        taken = [names[0] for names in topic.sends if len(names) == 1]
        assert sorted(taken) == ["a-1", "a-2", "b-1", "c-1", "c-2", "d-1", "e-1"]
        assert taken.index("a-1") < taken.index("a-2")
        assert taken.index("c-1") < taken.index("c-2")

    in_virtual_time(story())
    [told] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "topic topic refuses batches of several sessions" in told.getMessage()


def busy(_: list[str]) -> None:
    raise ServiceBusServerBusyError(error=MessageException(ErrorCondition.ResourceLimitExceeded))


def not_allowed(_: list[str]) -> None:
    answer = MessageException(ErrorCondition.NotAllowed)
    raise ServiceBusError("no", error=answer, condition=ErrorCondition.NotAllowed)


@pytest.mark.parametrize(("answer", "count"), [(busy, 2), (not_allowed, 1)])
def test_only_a_refusal_of_what_is_mixed_says_that_the_topic_does_not_mix_and_none_costs_a_link(
    answer: Callable[[list[str]], None], count: int
) -> None:
    async def story() -> None:
        topic = Topic(answer)
        publisher = topic.publisher()
        outcomes = await publish(publisher, *page(count))
        assert {type(outcome) for outcome in outcomes} == {Unknown}
        assert (len(topic.sends), publisher.guarantees.mixes_aggregates) == (1, True)
        assert [link.is_closed for link in topic.links] == [False], "a refusal is an answer"

    in_virtual_time(story())


def test_what_the_topic_itself_finds_too_large_is_not_said_to_be_seen_by_the_event_alone() -> None:
    """A fault of the topic's settings can say so of every event: then nothing of it may be dropped for good."""

    async def story() -> None:
        topic = Topic()

        def too_large(names: list[str]) -> None:
            if "a-2" in names:
                raise MessageSizeExceededError

        topic.answer = too_large
        group = [event("a", 1), event("a", 2), event("a", 3)]
        outcomes = await publish(topic.publisher(), group, [event("b", 1)])
        reason = "the message is larger than the topic takes (MessageSizeExceededError)"
        assert outcomes == [Refused(1, reason), Accepted()]
        assert isinstance(outcomes[0], Refused)
        assert not outcomes[0].shown_by_event

    in_virtual_time(story())
