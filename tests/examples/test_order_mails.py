"""The e-mail of a shipped order: one for each shipping, whatever comes again."""

import json
from datetime import UTC, datetime

import pytest

from cosmos_outbox.inbox.errors import Unreadable
from cosmos_outbox.inbox.set_aside import Delivery
from examples.orders import service
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order
from tests.support.effects import Clock, FakeLedger, Outbound, inbox_over
from tests.support.reading import reader_of

READER = reader_of(service.tell_customer)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Mails:
    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def order_shipped(self, order_id: str, *, idempotency_key: str) -> None:
        self.sent.append((order_id, idempotency_key))


def delivery(body: bytes, aggregate_type: str = "order") -> Delivery:
    return Delivery("order-mails", "m", 1, body, {"aggregateType": aggregate_type})


def bodies() -> list[bytes]:
    order = Order.place(NewOrder(customer="Contoso", lines=(Line(sku="A-1", quantity=2),)), at=NOON)
    placed = order.changes()
    assert placed is not None
    order = Order.load(placed.state)
    order.ship(at=NOON)
    shipped = order.changes()
    assert shipped is not None
    return [event.model_dump_json(by_alias=True).encode() for event in (*placed.events, *shipped.events)]


async def test_a_shipped_order_is_one_email_with_the_events_id_as_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mails, clock = Mails(), Clock()
    monkeypatch.setattr(service, "mail", mails)
    inbox = inbox_over(FakeLedger(), Outbound(), clock)
    inbox = type(inbox)(inbox.ledger, service.tell_customer.run, inbox.rules, clock)
    placed, shipped = bodies()
    for body in (shipped, placed, shipped):
        event = READER.read(delivery(body))
        assert event is not None
        await inbox.handle(event)
    told = json.loads(shipped)
    assert mails.sent == [(told["orderId"], told["id"])]


def test_what_is_no_event_of_an_order_is_passed_over_or_refused() -> None:
    assert READER.read(delivery(b"anything", "contact")) is None
    for body in (b"Jane", b'{"id": "Jane"}', b'["Jane"]'):
        with pytest.raises(Unreadable) as caught:
            READER.read(delivery(body))
        assert "Jane" not in str(caught.value)


def test_a_notice_names_its_order() -> None:
    notice = {
        "id": "0d3c1c5e-0000-4000-8000-000000000000", "action": "EventDiscarded", "sequence": 3,
        "createdAt": "2026-03-01T14:00:00Z", "aggregateType": "order", "aggregateId": "7",
    }  # fmt: skip
    event = READER.read(delivery(json.dumps(notice).encode()))
    assert event is not None
    assert (event.is_notice, event.aggregate, event.sequence) == (True, ("order", "7"), 3)


@pytest.mark.parametrize("order_id", [None, "", "a/b", "a?b", "a#b", "a\\b", "x" * 129])
def test_an_event_whose_order_cannot_be_stored_is_refused(order_id: str | None) -> None:
    """A read of an item with such an id is answered as if nobody had any rights: it would be tried for ever."""
    told = {**json.loads(bodies()[0]), "orderId": order_id}
    with pytest.raises(Unreadable):
        READER.read(delivery(json.dumps(told).encode()))
