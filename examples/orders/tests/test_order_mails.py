"""The e-mail of a shipped order: one for each shipping, whatever comes again."""

from collections.abc import AsyncIterator

import pytest

from cosmos_outbox.testing import InMemory, Message, in_memory, message
from examples.orders import service as declared
from examples.orders.service import notify_customer, service
from examples.orders.tests.changes import placed, ship


class Mails:
    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def order_shipped(self, order_id: str, *, idempotency_key: str) -> None:
        self.sent.append((order_id, idempotency_key))


@pytest.fixture
def mails(monkeypatch: pytest.MonkeyPatch) -> Mails:
    mails = Mails()
    monkeypatch.setattr(declared, "mail", mails)
    return mails


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(service) as made:
        yield made


async def test_a_shipped_order_is_one_email_with_the_events_id_as_its_key(
    memory: InMemory, mails: Mails
) -> None:
    order_id = await placed()
    await ship(order_id)
    first, shipped = memory.events
    await memory.deliver(shipped, first, shipped, to=notify_customer)
    assert mails.sent == [(order_id, shipped.id)]


async def test_a_skip_marker_takes_the_place_of_a_discarded_event(memory: InMemory, mails: Mails) -> None:
    """The publisher's operator has discarded event 1: it is no e-mail, and the one of event 2 does not wait."""
    assert await memory.deliver(message(("order", "7"), "EventDiscarded", 1), to=notify_customer) == []
    assert mails.sent == []
    shipped = message(("order", "7"), "OrderShippedEvent", 2)
    assert await memory.deliver(shipped, to=notify_customer) == []
    assert mails.sent == [("7", shipped.id)]


@pytest.mark.parametrize("body", [b"Jane", b'{"id": "Jane"}', b'["Jane"]'])
async def test_a_malformed_event_is_refused_without_its_text_in_the_reason(
    memory: InMemory, mails: Mails, body: bytes
) -> None:
    [record] = await memory.deliver(Message(body, {"aggregateType": "order"}), to=notify_customer)
    assert "Jane" not in record.reason
    assert await memory.deliver(Message(body, {"aggregateType": "contact"}), to=notify_customer) == []
    assert mails.sent == []


@pytest.mark.parametrize("order_id", ["", "a/b", "a?b", "a#b", "a\\b", "x" * 129])
async def test_an_event_whose_order_cannot_be_stored_is_refused(
    memory: InMemory, mails: Mails, order_id: str
) -> None:
    """A read of an item with such an id is answered as if nobody had any rights: it would be tried for ever."""
    [record] = await memory.deliver(message(("order", order_id), "OrderShippedEvent", 1), to=notify_customer)
    assert record.state.value == "refused"
    assert mails.sent == []
