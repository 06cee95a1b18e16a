"""The order service as it is, over Storage queues: no order and duplicates, and its board and its e-mails are right."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.preflight import storagequeue
from cosmos_outbox.preflight.plan import plan_for
from cosmos_outbox.preflight.report import Status
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.transports import StorageQueue
from cosmos_outbox.storagequeue.client import queue_service
from cosmos_outbox.worker.running import running
from devstack.testing import Service, eventually
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order
from examples.orders.service import BOARD
from examples.orders.service import service as order_service
from tests.support.azure import database_of
from tests.support.contacts import ORIGIN

pytestmark = [pytest.mark.long, pytest.mark.needs_a_socket]  # Azurite has one

ORDER = NewOrder(customer="Contoso", lines=(Line(sku="A-1", quantity=2),))


@pytest.fixture
async def settings(cosmos_server: Service, storage_server: Service) -> AsyncIterator[dict[str, str]]:
    board, mails, gifts = (f"{name}-{uuid4().hex}" for name in ("board", "mails", "gifts"))
    async with (
        database_of(cosmos_server, order_service) as database,
        queue_service(Connection(connection_string=storage_server.connection_string), None) as queues,
    ):
        for name in (board, mails, gifts, f"{board}-poison"):
            await queues.create_queue(name)
        yield {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "TRANSPORT": "storagequeue",
            "STORAGEQUEUE": storage_server.connection_string,
            "ORDER_BOARD_SUBSCRIPTION": board,
            "ORDER_MAILS_SUBSCRIPTION": mails,
            "ORDER_GIFTS_SUBSCRIPTION": gifts,
            "RELAY_POLL_DELAY_MS": "50",
        }


async def turned_round_and_doubled(account: str, name: str, count: int) -> None:
    """The messages of a queue, when so many are there: the last one first, and then all once more."""
    async with queue_service(Connection(connection_string=account), None) as service:
        queue, texts = service.get_queue_client(name), list[str]()

        async def taken() -> bool:
            async for each in queue.receive_messages(messages_per_page=32):
                texts.append(each.content)
                await queue.delete_message(each)
            return len(texts) == count

        await eventually(taken, within=60)
        for text in [*reversed(texts), *texts]:
            await queue.send_message(text)


async def test_orders_are_on_the_board_and_each_is_told_once_though_messages_come_twice_and_in_any_order(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="examples")
    async with running(order_service, environment=settings, subscribers=False) as sending:
        orders = []
        for _ in range(5):
            placed = await sending.wired.aggregates.create(Order.place(ORDER, at=utc_now()), ORIGIN)
            orders.append(placed.aggregate.aggregate_id)
            await sending.wired.aggregates.change(
                Order, orders[-1], lambda order: order.ship(at=utc_now()), ORIGIN
            )
        for name in (settings["ORDER_BOARD_SUBSCRIPTION"], settings["ORDER_MAILS_SUBSCRIPTION"]):
            await turned_round_and_doubled(settings["STORAGEQUEUE"], name, 2 * len(orders))

    async with running(order_service, environment=settings, relay=False, slots=4) as at_work:

        async def all_are_shipped() -> bool:
            entries = at_work.wired.read_model(BOARD).inbox.entries
            found = [await entries.newest(AggregateKey("order", order)) for order in orders]
            return all(each is not None and each.entry.last_sequence == 2 for each in found)

        await eventually(all_are_shipped, within=60)
        await eventually(
            lambda: all(f"order {each} is on its way" in caplog.text for each in orders), within=60
        )
    for order in orders:
        assert caplog.text.count(f"order {order} is on its way") == 1


async def test_preflight_names_the_queues_that_are_missing(settings: dict[str, str]) -> None:
    plan = plan_for(
        order_service,
        settings,
        other_subscriptions=(),
        survive=timedelta(hours=1),
        as_app=False,
        emulator_port=1,
    )
    transport = plan.settings.transport
    assert isinstance(transport, StorageQueue)
    findings = await storagequeue.check(plan, transport, None)
    board, mails, gifts = transport.queues
    assert {each.subject: each.status for each in findings} == {
        f"queue {board}": Status.OK,
        f"queue {mails}": Status.OK,
        f"queue {board}-poison": Status.OK,
        f"queue {mails}-poison": Status.WRONG,
        f"queue {gifts}": Status.OK,
        f"queue {gifts}-poison": Status.WRONG,
    }
