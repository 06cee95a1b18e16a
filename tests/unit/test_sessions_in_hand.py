"""What one session's messages go through: each is handled, then completed; what fails is left for the next time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from azure.servicebus.amqp import AmqpMessageBodyType

from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.servicebus.sessions import Sessions
from cosmos_outbox.telemetry.work import Work
from tests.support.virtual_time import in_virtual_time


def message(name: str) -> Any:
    return SimpleNamespace(
        body_type=AmqpMessageBodyType.DATA, body=[b"x"], message_id=name, enqueued_sequence_number=None,
        sequence_number=1, application_properties=None, correlation_id=None,
    )  # fmt: skip


@dataclass
class Receiver:
    """One session with messages. The SDK's receiver is entered when it has got one."""

    broker: "Broker"
    messages: list[Any]
    session: Any = field(default_factory=lambda: SimpleNamespace(locked_until_utc=None))

    async def __aenter__(self) -> "Receiver":
        self.broker.as_it_opens()
        return self

    async def receive_messages(self, _count: int, _seconds: float) -> list[Any]:
        return [self.messages.pop(0)] if self.messages else []

    async def complete_message(self, settled: Any) -> None:
        self.broker.settled.append(f"{settled.message_id} completed")

    async def abandon_message(self, settled: Any) -> None:
        self.broker.settled.append(f"{settled.message_id} abandoned")

    async def close(self) -> None:
        await asyncio.sleep(1)  # some round trips
        self.broker.settled.append("closed")


@dataclass
class Waiting:
    """No session has messages any more."""

    async def __aenter__(self) -> "Waiting":
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None: ...


@dataclass
class Broker:
    """One of its sessions has these messages; there is no other."""

    names: list[str]
    settled: list[str] = field(default_factory=list)
    as_it_opens: Callable[[], None] = lambda: None
    given: bool = False

    def get_subscription_receiver(self, *_: object, **__: object) -> Receiver | Waiting:
        if self.given:
            return Waiting()
        self.given = True
        return Receiver(self, [message(name) for name in self.names])


@dataclass
class Worker:
    broker: Broker
    work: Work = field(default_factory=Work)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, receive: Callable[[Delivery], Awaitable[None]], *, seconds: float) -> None:
        sessions = Sessions(cast(Any, self.broker), "t", "s")
        serving = asyncio.create_task(sessions.serve(receive, self.stop, self.work, slots=1))
        await asyncio.sleep(seconds)
        self.stop.set()
        await serving


async def fine(_: Delivery) -> None: ...


def told(story: Coroutine[Any, Any, None]) -> None:
    in_virtual_time(story)


def test_a_message_whose_store_is_away_is_given_back_and_nothing_behind_it_is_begun() -> None:
    async def story() -> None:
        async def away_at_b(delivery: Delivery) -> None:
            if delivery.message_id == "b":
                raise StoreAway("away")

        worker = Worker(Broker(["a", "b", "c"]))
        await worker.run(away_at_b, seconds=1)
        assert worker.broker.settled == ["a completed", "b abandoned", "closed"]
        assert worker.work.received == 1

    told(story())


def test_a_session_with_many_messages_shows_with_each_that_its_slot_lives() -> None:
    async def story() -> None:
        worker, silent = Worker(Broker([str(number) for number in range(20)])), list[float]()

        async def for_a_second(_: Delivery) -> None:
            silent.extend(each.silent_seconds for each in worker.work.pulses)
            await asyncio.sleep(1)

        await worker.run(for_a_second, seconds=25)
        assert worker.work.received == 20
        assert max(silent) <= 1

    told(story())


def test_after_an_outage_a_session_that_is_empty_when_it_comes_says_that_it_is_over() -> None:
    async def story() -> None:
        worker = Worker(Broker([]))
        worker.work.failed("Service Bus cannot be reached", opening=True)
        await worker.run(fine, seconds=1)
        assert worker.work.waiting_for is None

    told(story())


def test_a_session_that_comes_as_the_worker_stops_says_nothing_of_an_outage() -> None:
    async def story() -> None:
        worker = Worker(Broker(["a"]))
        worker.broker.as_it_opens = worker.stop.set
        worker.work.failed("Service Bus cannot be reached", opening=True)
        await worker.run(fine, seconds=1)
        assert worker.work.waiting_for == "Service Bus cannot be reached"
        assert worker.work.received == 0

    told(story())


def test_as_the_worker_stops_an_opening_has_ended_before_its_receiver_is_closed() -> None:
    """What is opened behind a close would stay open, and hold a session that nobody works on."""

    async def story() -> None:
        noted = list[str]()

        class Slow(Waiting):
            async def __aenter__(self) -> "Waiting":
                try:
                    return await super().__aenter__()
                except asyncio.CancelledError:
                    await asyncio.sleep(0.5)
                    noted.append("opening ended")
                    raise

            async def close(self) -> None:
                noted.append("closed")

        broker = Broker([])
        broker.get_subscription_receiver = lambda *_, **__: Slow()  # type: ignore[method-assign]  # for this story
        await Worker(broker).run(fine, seconds=1)
        assert noted == ["opening ended", "closed"]

    told(story())
