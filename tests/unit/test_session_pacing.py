"""A broker that refuses at once, whatever its words, is asked ever more rarely; one outage is told once."""

import asyncio
import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.servicebus.sessions import WAITING, Sessions
from cosmos_outbox.telemetry.work import Work
from devstack.testing import eventually
from tests.support.virtual_time import in_virtual_time

FIRST_PAUSE = 0.05


@dataclass
class Refusing:
    """Refuses to open a receiver, or to receive with one that was opened."""

    error: AzureError
    opens: bool = False
    asked: list[float] = field(default_factory=list)
    session: Any = None

    def get_subscription_receiver(self, *_: object, **__: object) -> "Refusing":
        self.asked.append(asyncio.get_running_loop().time())
        return self

    async def __aenter__(self) -> "Refusing":
        if not self.opens:
            raise self.error
        return self

    async def receive_messages(self, *_: object) -> list[Any]:
        raise self.error

    async def close(self) -> None:
        """Nothing is open."""


class Session:
    locked_until_utc = None


async def nothing(*_: object) -> None:
    raise AssertionError("nothing was received")


@pytest.mark.parametrize(
    ("error", "opens"),
    [
        (OperationTimeoutError(), False),
        (SessionCannotBeLockedError(), False),
        (MessagingEntityDisabledError(), False),
        (ServiceBusError("x"), False),
        (OperationTimeoutError(), True),
        (SessionLockLostError(), True),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else f"opens {given}",
)
async def test_a_refusal_is_followed_by_a_pause_as_long_as_the_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: AzureError, opens: bool
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("cosmos_outbox.telemetry.work._FIRST_PAUSE_SECONDS", FIRST_PAUSE)
    client, stop, work = Refusing(error, opens, session=Session()), asyncio.Event(), Work()
    serving = asyncio.create_task(
        Sessions(cast(Any, client), "t", "s").serve(nothing, stop, work, slots=WAITING)
    )
    rounds = 6
    await eventually(lambda: len(client.asked) >= rounds * WAITING)
    stop.set()
    await serving
    lasted = client.asked[rounds * WAITING - 1] - client.asked[0]
    assert lasted > 15 * FIRST_PAUSE, "1, 1, 2, 4, 8: each pause is as long as all before it"
    assert isinstance(work.waiting_for, str)
    assert type(error).__name__ in work.waiting_for
    assert [each.levelname for each in caplog.records if each.name.startswith("cosmos_outbox")] == ["WARNING"]


@dataclass
class Slot:
    """Waits for one of the broker's sessions, which has one message."""

    broker: "Broker"
    left: list[Any] = field(default_factory=list)
    session: Any = field(default_factory=Session)

    async def __aenter__(self) -> "Slot":
        self.broker.waiting += 1
        try:
            async with asyncio.timeout(20):
                name = await self.broker.sessions.get()
        except TimeoutError:
            raise OperationTimeoutError from None
        finally:
            self.broker.waiting -= 1
        self.left = [
            SimpleNamespace(
                body_type=AmqpMessageBodyType.DATA, body=[b"x"], message_id=name, enqueued_sequence_number=None,
                sequence_number=1, application_properties=None, correlation_id=None,
            )
        ]  # fmt: skip
        return self

    async def receive_messages(self, *_: object) -> list[Any]:
        found, self.left = self.left, []
        return found

    async def complete_message(self, _: object) -> None: ...

    async def close(self) -> None: ...


@dataclass
class Broker:
    """Gives each of its sessions to one slot that waits; no message is handled before ``go_on``."""

    sessions: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue)
    waiting: int = 0
    received: list[tuple[float, str]] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    work: Work = field(default_factory=Work)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def get_subscription_receiver(self, *_: object, **__: object) -> Slot:
        return Slot(self)

    async def receive(self, delivery: Delivery) -> None:
        self.received.append((asyncio.get_running_loop().time(), delivery.message_id))
        await self.go_on.wait()

    async def serve(self, slots: int) -> None:
        await Sessions(cast(Any, self), "t", "s").serve(self.receive, self.stop, self.work, slots=slots)


def test_others_wait_in_the_place_of_each_that_holds_a_session() -> None:
    async def story() -> None:
        broker, waiting = Broker(), []
        serving = asyncio.create_task(broker.serve(5))
        for name in ("a", "b", "c", "d", "e", "f"):
            await asyncio.sleep(5)
            waiting.append(broker.waiting)
            broker.sessions.put_nowait(name)
        assert waiting == [2, 2, 2, 2, 1, 0]
        assert broker.received == [(5.0, "a"), (10.0, "b"), (15.0, "c"), (20.0, "d"), (25.0, "e")]
        broker.go_on.set()
        await asyncio.sleep(5)
        assert broker.received[-1] == (30.0, "f")
        await asyncio.sleep(60)
        assert (broker.waiting, len(broker.work.pulses)) == (2, 2), "a slot costs a connection"
        assert broker.work.waiting_for is None, "that there is nothing to do is no trouble"
        assert max(each.silent_seconds for each in broker.work.pulses) <= 20
        broker.go_on.clear()
        for name in "ghijk":
            broker.sessions.put_nowait(name)
        await asyncio.sleep(0.1)
        assert [name for _, name in broker.received[6:]] == ["g", "h", "i", "j", "k"]
        broker.go_on.set()
        broker.stop.set()
        await serving

    in_virtual_time(story())


def test_where_a_session_comes_soon_two_wait_in_its_place() -> None:
    async def story() -> None:
        broker, waiting = Broker(), []
        serving = asyncio.create_task(broker.serve(20))
        await asyncio.sleep(1)
        for name, seconds in (("a", 0.3), ("b", 0.3), ("c", 10.0), ("d", 0.3)):
            broker.sessions.put_nowait(name)
            await asyncio.sleep(seconds)
            waiting.append(broker.waiting)
        assert waiting == [3, 4, 5, 5], "the last went to one that had waited for long"
        broker.go_on.set()
        broker.stop.set()
        await serving

    in_virtual_time(story())


def test_a_wait_without_a_session_after_an_outage_says_that_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        broker = Broker()
        broker.work.failed("Service Bus cannot be reached", opening=True)
        serving, waits = asyncio.create_task(broker.serve(2)), list[str | None]()
        for seconds in (19, 2):
            await asyncio.sleep(seconds)
            waits.append(broker.work.waiting_for)
        assert waits == ["Service Bus cannot be reached", None]
        broker.stop.set()
        await serving

    in_virtual_time(story())
    assert [each.message for each in caplog.records][1:] == ["messages are received again"]


def test_a_message_that_is_handled_says_that_an_outage_is_over_and_a_session_counts_until_it_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receive = Slot.receive_messages

    async def waits_for_more(slot: Slot, *given: object) -> list[Any]:
        if not slot.left:
            await asyncio.sleep(3)
        return await receive(slot, *given)

    monkeypatch.setattr(Slot, "receive_messages", waits_for_more)

    async def story() -> None:
        broker, told = Broker(), list[tuple[int, str | None]]()
        broker.work.failed("Service Bus cannot be reached", opening=True)
        broker.sessions.put_nowait("a")
        serving = asyncio.create_task(broker.serve(2))
        for come_on in (False, True, True):
            if come_on:
                broker.go_on.set()
            await asyncio.sleep(2)
            told.append((broker.work.sessions, broker.work.waiting_for))
        assert told == [(1, "Service Bus cannot be reached"), (1, None), (0, None)]
        broker.stop.set()
        await serving

    in_virtual_time(story())


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("error", [ServiceBusError("x"), OperationTimeoutError()])
def test_a_worker_is_unready_when_no_session_can_be_opened_not_when_one_fails(
    error: AzureError, *, opens: bool
) -> None:
    async def story() -> None:
        client, stop, work = Refusing(error, opens, session=Session()), asyncio.Event(), Work()
        serving = asyncio.create_task(
            Sessions(cast(Any, client), "t", "s").serve(nothing, stop, work, slots=1)
        )
        await asyncio.sleep(0.5)
        assert client.asked
        assert (work.waiting_for is None) is opens
        stop.set()
        await serving

    in_virtual_time(story())


async def test_one_session_that_fails_does_not_make_a_worker_unready() -> None:
    work = Work()
    seen = [work.waiting_for]
    work.failed("its lock was lost", opening=False)
    seen.append(work.waiting_for)
    work.failed("Service Bus cannot be reached", opening=True)
    seen.append(work.waiting_for)
    work.came_through()
    assert [*seen, work.waiting_for] == [None, None, "Service Bus cannot be reached", None]
