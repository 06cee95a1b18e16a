"""Messages of a Storage queue are handled, renewed, given back and given up, over the real Azurite."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.message import Delivery, MessageReader
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, CloudEvents, Refused
from cosmos_outbox.preflight.checks import check_queues
from cosmos_outbox.preflight.plan import plan_for
from cosmos_outbox.preflight.report import Status
from cosmos_outbox.settings.transports import StorageQueue
from cosmos_outbox.storagequeue import receiver
from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher
from cosmos_outbox.storagequeue.receiver import PoisonQueue, QueueReceiver
from cosmos_outbox.telemetry.liveness import SlotHealth
from devstack.testing import eventually
from examples.orders.service import service as order_service
from tests.contract.conftest import StorageQueueBroker
from tests.support.publishing import event, publish

pytestmark = pytest.mark.long

READER, SERVICE = MessageReader("contact"), CloudEvents("/test")


@dataclass
class Subscriber:
    """Notes what it is given; ``fail`` may raise for a delivery."""

    fail: Callable[[Delivery], None] = lambda _: None
    got: list[str] = field(default_factory=list)
    seconds: float = 0.0

    async def receive(self, delivery: Delivery) -> None:
        self.got.append(delivery.message_id)
        await asyncio.sleep(self.seconds)
        self.fail(delivery)


@dataclass
class Consumed:
    broker: StorageQueueBroker
    hidden_seconds: float = 60.0
    most_deliveries: int = 20

    @property
    def messages(self) -> QueueReceiver:
        queue = self.broker.client.get_queue_client
        return QueueReceiver(
            queue(self.broker.queue), queue(f"{self.broker.queue}-poison"), self.hidden_seconds, self.most_deliveries,
        )  # fmt: skip

    @property
    def poison(self) -> PoisonQueue:
        return PoisonQueue(self.broker.client.get_queue_client(f"{self.broker.queue}-poison"), "s")

    async def left(self, *, poison: bool = False) -> int:
        """Hidden ones too."""
        of = self.broker.client.get_queue_client(self.broker.queue + ("-poison" if poison else ""))
        return int((await of.get_queue_properties()).approximate_message_count or 0)

    @asynccontextmanager
    async def serving(self, by: Subscriber, slots: int = 8) -> AsyncIterator[SlotHealth]:
        stop, health = asyncio.Event(), SlotHealth()
        serving = asyncio.create_task(self.messages.serve(by.receive, stop, health, slots=slots))
        try:
            yield health
        finally:
            stop.set()
            async with asyncio.timeout(20):
                await serving


@pytest.fixture
async def consumed(storagequeue_broker: StorageQueueBroker) -> Consumed:
    await storagequeue_broker.client.create_queue(f"{storagequeue_broker.queue}-poison")
    return Consumed(storagequeue_broker)


async def until(true: Callable[[], bool]) -> None:
    await eventually(true, within=30)


async def until_left(consumed: Consumed, count: int, *, poison: bool = False) -> None:
    async def so_many() -> bool:
        return await consumed.left(poison=poison) == count

    await eventually(so_many, within=30)


def whole(contact: str, sequence: int, text: str = "") -> OutboxEvent:
    """With all that a subscriber reads."""
    made = event(contact, sequence)
    data = {
        "id": made.id, "action": made.action, "sequence": sequence, "createdAt": made.created_at.isoformat(),
        "contactId": contact, "text": text,
    }  # fmt: skip
    return replace(made, data=data)


async def test_what_is_handled_is_gone_and_a_stop_waits_for_what_is_in_hand(consumed: Consumed) -> None:
    await publish(consumed.broker.publisher, *([event(f"a{n}", 1)] for n in range(40)))
    subscriber = Subscriber(seconds=0.2)
    async with consumed.serving(subscriber) as health:
        await until(lambda: len(subscriber.got) >= 9)
    assert health.received == len(subscriber.got) == len({*subscriber.got}), "begun, and ended"
    async with consumed.serving(subscriber):
        await until(lambda: len(subscriber.got) == 40)
    assert sorted(subscriber.got) == sorted(f"a{n}-1" for n in range(40))
    assert await consumed.left() == 0


async def test_a_message_that_came_too_often_is_collected_from_the_poison_queue(
    consumed: Consumed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "AWAY_SECONDS", 1)
    consumed.most_deliveries = 2
    await publish(consumed.broker.publisher, [whole("a", 1)])

    def fail(_: Delivery) -> None:
        raise StoreUnavailable("the store is away")

    subscriber = Subscriber(fail)
    async with consumed.serving(subscriber):
        await until_left(consumed, 1, poison=True)
        await until_left(consumed, 0)
    assert subscriber.got == ["a-1"] * 2
    kept: list[tuple[Delivery, str]] = []

    async def keep(delivery: Delivery, reason: str) -> None:
        kept.append((delivery, reason))

    found = await consumed.poison.collect(keep, seconds=10)
    [(delivery, reason)] = kept
    assert (found.messages, found.emptied, reason) == (1, True, "poison: it came too often")
    read = READER.read(delivery)
    assert read is not None
    assert (read.id, read.sequence, read.source) == ("a-1", 1, "/test")


async def test_what_is_no_event_is_received_as_such(consumed: Consumed) -> None:
    await consumed.messages.queue.send_message("bm90IGFuIGV2ZW50")  # "not an event"
    nested = "[" * 20_000 + "]" * 20_000
    await consumed.messages.queue.send_message(f'{{"specversion":"1.0","id":"1","data":{nested}}}')
    text = "ü<&>" * 500
    for encoded, contact in ((True, "a"), (False, "b")):
        publisher = StorageQueuePublisher(
            consumed.broker.client, [consumed.broker.queue], service=SERVICE, encoded=encoded, senders=6
        )
        assert await publish(publisher, [whole(contact, 1, text)]) == [Accepted()]
    got: dict[str, Delivery] = {}
    subscriber = Subscriber(lambda each: got.update({each.message_id: each}))
    async with consumed.serving(subscriber) as health:
        await until(lambda: health.received == 4)
    for contact in ("a", "b"):
        read = READER.read(got.pop(f"{contact}-1"))
        assert read is not None
        assert (read.aggregate.id, read.sequence, read.data["text"]) == (contact, 1, text)
    assert [each.properties for each in got.values()] == [{"unreadable": "it is no JSON of CloudEvents"}] * 2


async def test_a_larger_event_is_refused_with_its_size_and_the_limit(consumed: Consumed) -> None:
    [outcome] = await publish(consumed.broker.publisher, [event("a", 1, "x" * 49_000), event("a", 2)])
    assert isinstance(outcome, Refused)
    assert outcome.shown_by_event
    assert re.fullmatch(r"the message has \d{5} bytes, and a Storage queue takes 65536", outcome.reason)


async def test_preflight_names_the_queues_that_are_missing(consumed: Consumed) -> None:
    queue = consumed.broker.queue
    settings = {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;",
        "TRANSPORT": "storagequeue",
        "STORAGEQUEUE": consumed.broker.account,
        "ORDER_BOARD_SUBSCRIPTION": queue,
        "ORDER_MAILS_SUBSCRIPTION": f"{queue}-mails",
        "ORDER_GIFTS_SUBSCRIPTION": f"{queue}-gifts",
    }
    await consumed.broker.client.create_queue(f"{queue}-mails")
    plan = plan_for(
        order_service,
        settings,
        other_subscriptions=(),
        survive=timedelta(hours=1),
        as_app=False,
        emulator_port=1,
    )
    assert isinstance(plan.settings.transport, StorageQueue)
    findings = await check_queues(plan, plan.settings.transport, None)
    statuses = {each.subject.removeprefix(f"queue {queue}"): each.status for each in findings}
    assert (statuses[""], statuses["-poison"], statuses["-mails"]) == (Status.OK,) * 3
    assert (statuses["-mails-poison"], statuses["-gifts"]) == (Status.WRONG,) * 2
