"""Dead letters over a broker that takes its time: what was received is kept and settled, and nothing is made up."""

import asyncio
import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.amqp import AmqpMessageBodyType

from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.servicebus.dead_letters import DeadLetters
from tests.support.virtual_time import in_virtual_time


def dead_letter(name: str) -> Any:
    return SimpleNamespace(
        body_type=AmqpMessageBodyType.DATA, body=[b"x"], message_id=name, enqueued_sequence_number=None,
        sequence_number=1, application_properties=None, dead_letter_reason="MaxDeliveryCountExceeded",
    )  # fmt: skip


@dataclass
class Receiver:
    """Each call takes a second; after its messages the queue says nothing for as long as it is asked."""

    names: list[str]
    calls: list[str] = field(default_factory=list)

    async def __aenter__(self) -> "Receiver":
        await asyncio.sleep(1)
        self.calls.append("opened")
        return self

    async def receive_messages(self, _most: int, *, max_wait_time: float) -> list[Any]:
        assert self.calls[:1] == ["opened"]
        if not self.names:
            await asyncio.sleep(max_wait_time)
            return []
        await asyncio.sleep(1)
        return [dead_letter(self.names.pop(0))]

    async def complete_message(self, settled: Any) -> None:
        await asyncio.sleep(1)
        self.calls.append(f"{settled.message_id} completed")

    async def close(self) -> None:
        await asyncio.sleep(1)
        self.calls.append("closed")


@dataclass
class Client:
    receiver: Receiver
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def get_subscription_receiver(self, *names: str, sub_queue: object) -> Receiver:
        self.asked.append((*names, sub_queue))
        return self.receiver

    get_queue_receiver = get_subscription_receiver


@pytest.mark.parametrize(
    ("names", "seconds", "found", "calls"),
    [
        ([], 20, Collected(0, emptied=True), ["opened", "closed"]),
        (["a", "b"], 20, Collected(2, emptied=True), ["opened", "a completed", "b completed", "closed"]),
        # Received before its time is over, or asked for before that: dealt with to its end.
        (["a", "b"], 1.5, Collected(1, emptied=False), ["opened", "a completed", "closed"]),
        # That it is empty is known, although that was said after the time was over.
        ([], 1.5, Collected(0, emptied=True), ["opened", "closed"]),
    ],
)
def test_what_is_there_is_moved_and_whether_more_is_left_is_told(
    names: list[str], seconds: float, found: Collected, calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="cosmos_outbox")

    async def story() -> None:
        client, kept = Client(Receiver([*names])), list[str]()

        async def keep(delivery: Delivery, reason: str) -> None:
            assert f"{delivery.message_id} completed" not in client.receiver.calls
            kept.append(delivery.message_id)
            assert reason == "dead letter: MaxDeliveryCountExceeded"

        assert await DeadLetters(cast(Any, client), "t", "s").collect(keep, seconds=seconds) == found
        assert client.receiver.calls == calls
        assert kept == names[: found.messages]
        assert client.asked == [("t", "s", ServiceBusSubQueue.DEAD_LETTER)]

    in_virtual_time(story())
    told = [each.getMessage() for each in caplog.records]
    assert told == ([f"collected {found.messages} dead letter(s) of s"] if found.messages else [])


def test_of_a_queue_its_own_dead_letters_are_collected() -> None:
    async def story() -> None:
        client = Client(Receiver([]))

        async def nothing(*_: object) -> None:
            raise AssertionError("nothing was received")

        await DeadLetters(cast(Any, client), "q", "s", is_queue=True).collect(nothing, seconds=20)
        assert client.asked == [("q", ServiceBusSubQueue.DEAD_LETTER)]

    in_virtual_time(story())
