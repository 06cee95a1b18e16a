"""Another team's message adds a line to an order once: a worker dies, answers get lost, and the message comes again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cosmos_outbox import Event, Named, Names, Origin, Service, functions, running
from cosmos_outbox.cli import stuck
from cosmos_outbox.errors import ReactionRefused
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.testing import LocalAzure, eventually, message
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order

SKU = Line(sku="gift", quantity=1)

service = Service(
    "shop", aggregates=[Order], names=Names(database="shop", container="orders", topic="order-events")
)


@service.reaction(
    "gifts", of="gift", to=Order, target=lambda event: event.data["orderId"], order="any",
    topic=Named("GIFT_TOPIC", "gift-events"),
)  # fmt: skip
def add_gift(order: Order | None, event: Event) -> None:
    """One line for each gift."""
    if order is None:
        raise ReactionRefused("there is no such order")
    order.add_line(SKU, at=event.created_at)


async def _lines(order_id: str) -> int:
    found = await service().aggregates.read(Order, order_id, Origin("test"))
    return sum(line == SKU for line in found.aggregate.state.lines)


@pytest.mark.own_stack
async def test_a_message_adds_its_line_once_whatever_answer_is_lost(tmp_path: Path) -> None:
    with LocalAzure(tmp_path, service) as azure:
        placed = Order.place(NewOrder(customer="Contoso", lines=(Line(sku="A-1", quantity=2),)), at=utc_now())
        order_id = placed.aggregate_id
        gift = message(("gift", "g-1"), "GiftChosen", 1, data={"orderId": order_id, "correlationId": "c-1"})
        lost = message(("gift", "g-2"), "GiftChosen", 1, data={"orderId": "no-such-order"})
        async with running(service, environment=azure.settings):
            await service().aggregates.create(placed, Origin("request-1"))
            await azure.cosmos.faults.add("drop-after-commit", count=5, operation="batch", container="orders")
            await azure.send(gift, topic="gift-events")
            await eventually(lambda: _is(order_id, 1))
            await azure.send(gift, topic="gift-events", message_id="published-again")
            await azure.send(lost, topic="gift-events")
            [record] = await eventually(_set_aside)
            first = service().subscriptions["gifts"].subscriber
            await eventually(lambda: _handled(first, 3))
            assert record.reason == "there is no such order"
            told = await azure.receive("watch", 2, topic="order-events")
            assert [each.data["action"] for each in told] == ["OrderPlacedEvent", "OrderLineAddedEvent"]
            assert told[1].data["causationId"] == gift.id
        listed = await asyncio.to_thread(
            stuck.stuck_main, ["--service", f"{__name__}.service"], azure.settings
        )
        arguments = [record.id, "--reason", "not ours", "--service", f"{__name__}.service"]
        assert (listed, await asyncio.to_thread(stuck.discard_main, arguments, azure.settings)) == (1, 0)
        async with running(service, environment=azure.settings):
            await azure.send(lost, topic="gift-events", message_id="once-more")
            await azure.send(gift, topic="gift-events", message_id="and-once-more")
            subscriber = service().subscriptions["gifts"].subscriber
            await eventually(lambda: _handled(subscriber, 2))
            assert await _lines(order_id) == 1
            assert await _set_aside() == []


async def _is(order_id: str, lines: int) -> bool:
    return await _lines(order_id) == lines


async def _set_aside() -> list[Any]:
    return [*(await service().subscriptions["gifts"].subscriber.retrier.page(10, None)).items]


async def _handled(subscriber: Any, count: int) -> bool:
    inbox = subscriber.receiver.handle.__self__
    return bool(sum(inbox.counts.values()) == count)


def test_the_function_app_has_its_trigger_and_its_operators_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIFT_TOPIC", "the-gifts")
    found = {each.get_function_name(): each for each in functions.app(service).get_functions()}
    trigger = found["gifts"].get_trigger()
    assert trigger is not None
    assert trigger.get_dict_repr()["topicName"] == "the-gifts"
    assert "watch_gifts" in found
