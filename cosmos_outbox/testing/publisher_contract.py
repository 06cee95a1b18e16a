"""The contract of a publisher, as tests that an adapter's own test class inherits. They need only pytest.

No test loses an answer of the broker: an adapter has to test itself that such events are unknown, and not refused.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Outcome, Publisher, Refused, Unknown

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Broker:
    """A publisher under test, and its broker."""

    publisher: Publisher
    receive: Callable[[str, int], Awaitable[Sequence[str]]]
    """Returns the ids of an aggregate's messages as a subscriber gets them, when there are so many."""
    away: Callable[[], AbstractAsyncContextManager[Publisher]]
    """Returns a publisher to a broker that cannot be reached."""


Check = Callable[["PublisherContract", Broker], Coroutine[Any, Any, None]]


def _over_a_broker(check: Check) -> Callable[["PublisherContract", Path], None]:
    def test(self: "PublisherContract", tmp_path: Path) -> None:
        async def run() -> None:
            async with self.opened(tmp_path) as broker:
                await check(self, broker)

        asyncio.run(run())

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def _event(of: str, sequence: int, text: str = "", *, message_id: str | None = None) -> OutboxEvent:
    return OutboxEvent(
        id=f"{of}-{sequence}", aggregate=AggregateKey("thing", of), action="ThingChanged", sequence=sequence,
        created_at=NOON, correlation_id="c", lsn=sequence, data={"sequence": sequence, "text": text},
        message_id=message_id,
    )  # fmt: skip


async def _publish(
    publisher: Publisher, *groups: Sequence[OutboxEvent], within: float = 60.0
) -> Sequence[Outcome]:
    page = [AggregateEvents(group[0].aggregate, group) for group in groups]
    return await publisher.publish(page, asyncio.get_running_loop().time() + within)


def _ids(of: str, last: int) -> list[str]:
    return [f"{of}-{sequence}" for sequence in range(1, last + 1)]


class PublisherContract(ABC):
    """Tests of a publisher. Inherit it in a test module, and define how an empty broker is opened.

    Example::

        class TestMyPublisher(PublisherContract):
            def opened(self, folder):
                return contextlib.nullcontext(Broker(my_publisher, receive, away))
    """

    large = 30_000
    """The length of an event that can be sent, though not many of them at once."""
    too_large: int | None = 300_000
    """The length of an event that cannot; None: there is no limit."""

    @abstractmethod
    def opened(self, folder: Path) -> AbstractAsyncContextManager[Broker]:
        """Returns an empty broker; ``folder`` belongs to the test."""

    @_over_a_broker
    async def test_events_arrive_in_the_order_given(self, broker: Broker) -> None:
        """Thirty of one aggregate."""
        assert await _publish(broker.publisher, [_event("a", n) for n in range(1, 31)]) == [Accepted()]
        assert await self._receive_once(broker, "a", 30) == _ids("a", 30)

    @_over_a_broker
    async def test_an_event_that_is_sent_again_arrives_once(self, broker: Broker) -> None:
        """Its message has the same id; where the transport drops no duplicates, the subscriber does."""
        await _publish(broker.publisher, [_event("a", 1), _event("a", 2)])
        await _publish(broker.publisher, [_event("a", 1), _event("a", 2), _event("a", 3)])
        assert await self._receive_once(broker, "a", 3) == _ids("a", 3)

    @_over_a_broker
    async def test_an_event_that_is_published_again_arrives_again(self, broker: Broker) -> None:
        """Its message has an id of its own, or the broker would drop it."""
        await _publish(broker.publisher, [_event("a", 1)])
        assert await _publish(broker.publisher, [_event("a", 1, message_id="again")]) == [Accepted()]
        assert [*await broker.receive("a", 2)] == ["a-1", "again"]

    @_over_a_broker
    async def test_more_than_one_batch_holds_arrives_in_order(self, broker: Broker) -> None:
        """Seven large events."""
        events = [_event("a", n, "x" * self.large) for n in range(1, 8)]
        assert await _publish(broker.publisher, events) == [Accepted()]
        assert await self._receive_once(broker, "a", 7) == _ids("a", 7)

    @pytest.mark.parametrize("place", [1, 2, 3])
    def test_sending_stops_at_the_first_event_that_is_too_large(self, tmp_path: Path, place: int) -> None:
        """It is refused, those before it are accepted, and none after it is sent."""

        async def run() -> None:
            async with self.opened(tmp_path) as broker:
                events = [_event("a", n, self._too_large() if n == place else "") for n in (1, 2, 3)]
                [outcome] = await _publish(broker.publisher, events)
                assert isinstance(outcome, Refused)
                assert outcome.accepted == place - 1
                assert await self._receive_once(broker, "a", place - 1) == _ids("a", place - 1)

        asyncio.run(run())

    @_over_a_broker
    async def test_a_page_has_an_outcome_for_each_aggregate_in_its_order(self, broker: Broker) -> None:
        """One is refused from its second event on: the others do not wait for it."""
        groups = [[_event(f"a{n}", 1), _event(f"a{n}", 2)] for n in range(9)]
        groups[2][1] = _event("a2", 2, self._too_large())
        outcomes = await _publish(broker.publisher, *groups)
        assert [type(each) for each in outcomes] == [Refused if n == 2 else Accepted for n in range(9)]
        assert await self._receive_once(broker, "a2", 1) == ["a2-1"]
        assert await self._receive_once(broker, "a8", 2) == _ids("a8", 2)

    @_over_a_broker
    async def test_a_broker_that_is_not_there_makes_events_wait(self, broker: Broker) -> None:
        """All of the page: an unavailable broker is an outcome, and no error."""
        async with broker.away() as publisher:
            outcomes = await _publish(publisher, *([_event(f"a{n}", 1)] for n in range(40)))
        for outcome in outcomes:
            assert isinstance(outcome, Unknown)
            assert (outcome.accepted, outcome.why) == (0, FailureReason.BROKER_AWAY)
            assert outcome.reason

    @_over_a_broker
    async def test_nothing_is_sent_when_the_time_is_over(self, broker: Broker) -> None:
        """An event that was accepted before stays."""
        await _publish(broker.publisher, [_event("a", 1)])
        [outcome] = await _publish(broker.publisher, [_event("a", 2)], within=-1)
        assert isinstance(outcome, Unknown)
        assert outcome.accepted == 0
        assert await self._receive_once(broker, "a", 1) == ["a-1"]

    def _too_large(self) -> str:
        if self.too_large is None:
            pytest.skip("there is no limit")
        return "x" * self.too_large

    async def _receive_once(self, broker: Broker, of: str, count: int) -> list[str]:
        """Returns each once, in order: an inbox does what the transport does not."""
        found, declared = [*await broker.receive(of, count)], broker.publisher.guarantees
        if not declared.deduplicates:
            found = list(dict.fromkeys(found))
        return found if declared.ordered else sorted(found, key=lambda one: int(one.rpartition("-")[2]))
