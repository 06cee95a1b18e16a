"""The order service outside Functions: one worker serves both subscribers, and does what their timers do."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.inbox.effect import EffectInbox, EffectState
from cosmos_outbox.inbox.set_aside import Delivery, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.subscriber import Subscription
from cosmos_outbox.service import Wired
from cosmos_outbox.worker import subscriber as subscriber_worker
from devstack.testing import Service, eventually
from examples.orders.events import Line
from examples.orders.mail import LoggedMail
from examples.orders.order import NewOrder, Order
from examples.orders.service import BOARD, add_gift
from examples.orders.service import service as order_service
from tests.support.azure import Topic, database_of
from tests.support.contacts import ORIGIN

MAILS = "order-mails"
ORDER = NewOrder(customer="Contoso", lines=(Line(sku="A-1", quantity=2),))


@pytest.fixture
async def settings(cosmos_server: Service, servicebus_server: Service) -> AsyncIterator[dict[str, str]]:
    topic = Topic(servicebus_server)
    await topic.create(MAILS, BOARD.name, add_gift.name)
    async with database_of(cosmos_server, order_service) as database:
        yield {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
        }
    await topic.delete()


@pytest.fixture
async def service(settings: dict[str, str]) -> AsyncIterator[Wired]:
    wired = order_service.wire(settings)
    async with wired.outbox.resources:
        yield wired


def mails(service: Wired) -> Subscription:
    return service.subscriptions[MAILS]


@asynccontextmanager
async def worker(settings: dict[str, str]) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(subscriber_worker.run(order_service.wire(settings), stop, slots=2))
    try:
        yield
    finally:
        stop.set()
        await running


def shipped(order_id: str, sequence: int = 1) -> dict[str, Any]:
    return {
        "id": str(uuid4()), "orderId": order_id, "action": "OrderShippedEvent", "sequence": sequence,
        "createdAt": datetime.now(UTC).isoformat(), "shippedAt": datetime.now(UTC).isoformat(),
    }  # fmt: skip


async def send(settings: dict[str, str], body: dict[str, Any]) -> None:
    message = ServiceBusMessage(
        json.dumps(body), session_id=body["orderId"], message_id=body["id"],
        application_properties={"aggregateType": "order"},
    )  # fmt: skip
    async with (
        ServiceBusClient.from_connection_string(settings["SERVICEBUS"]) as client,
        client.get_topic_sender(settings["SERVICEBUS_TOPIC"]) as sender,
    ):
        await sender.send_messages(message)


async def email_that_waits(service: Wired) -> dict[str, Any]:
    """An e-mail that was set aside: no message brings it again."""
    body = shipped(str(uuid4()))
    await mails(service).subscriber.receiver.keep(delivered(body), "a dead letter")
    return body


def delivered(body: dict[str, Any]) -> Delivery:
    return Delivery(MAILS, body["id"], 1, json.dumps(body).encode(), {"aggregateType": "order"})


async def test_the_worker_serves_the_board_and_the_emails_and_goes_on_with_emails_that_wait(
    settings: dict[str, str],
    service: Wired,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, logger="examples")
    monkeypatch.setattr(subscriber_worker, "WATCH_SECONDS", 0.05)
    waiting = await email_that_waits(service)
    order_id = (
        await service.aggregates.create(Order.place(ORDER, at=utc_now()), ORIGIN)
    ).aggregate.aggregate_id
    told = shipped(order_id)
    async with worker(settings):
        await send(settings, told)
        for each in (waiting, told):
            email = f"e-mail {each['id']}: order {each['orderId']} is on its way"
            await eventually(partial(_logged, caplog, email), within=30)

        async def on_the_board() -> bool:
            entry = await service.read_model(BOARD).inbox.entries.newest(AggregateKey("order", order_id))
            return entry is not None

        await eventually(on_the_board, within=30)


def _logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


async def test_an_email_whose_record_was_discarded_is_not_sent_when_its_message_comes_again(
    service: Wired, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="examples")
    subscriber, body = mails(service).subscriber, shipped(str(uuid4()))
    delivery = delivered(body)
    await subscriber.receiver.keep(delivery, "dead letter: MaxDeliveryCountExceeded")
    [record] = (await subscriber.retrier.page(10, None)).items
    await subscriber.retrier.discard(record.id, "the order was cancelled")
    await subscriber.receiver.receive(delivery)
    assert "e-mail" not in caplog.text
    assert await subscriber.retrier.counts() == {RecordState.WAITING: 0, RecordState.REFUSED: 0}


async def test_a_stop_lets_an_email_in_hand_end_and_its_record_be_written(
    settings: dict[str, str], service: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, it may have been sent: the next worker would send it again."""
    begun, go_on, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(_: LoggedMail, order_id: str, *, idempotency_key: str) -> None:
        begun.set()
        await go_on.wait()

    monkeypatch.setattr(LoggedMail, "order_shipped", slow)
    monkeypatch.setattr(subscriber_worker, "WATCH_SECONDS", 0.05)
    body = await email_that_waits(service)
    running = asyncio.create_task(subscriber_worker.run(order_service.wire(settings), stop, slots=1))
    await eventually(begun.is_set, within=30)
    stop.set()
    await asyncio.wait({running}, timeout=1)  # in which a worker that does not wait for it has ended
    go_on.set()
    await running
    inbox = mails(service).subscriber.retrier.asked
    assert isinstance(inbox, EffectInbox)
    record = await inbox.records.find(body["id"])
    assert record is not None
    assert record.state is EffectState.DONE
