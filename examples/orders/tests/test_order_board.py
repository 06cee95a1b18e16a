"""The board's entry after the events is the entry of the order itself, whatever is lost or comes again."""

from collections.abc import AsyncIterator

import pytest

from cosmos_outbox.testing import InMemory, in_memory, message
from examples.orders.board import BoardEntry, Status, entry_of
from examples.orders.service import BOARD, board, service
from examples.orders.tests.changes import add_line, placed, ship

AFTER_EACH = [
    BoardEntry(customer="Contoso", status=Status.PLACED, total=2),
    BoardEntry(customer="Contoso", status=Status.PLACED, total=7),
    BoardEntry(customer="Contoso", status=Status.SHIPPED, total=7),
]


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(service) as made:
        yield made


async def shipped() -> str:
    """An order with three events."""
    order_id = await placed()
    await add_line(order_id)
    await ship(order_id)
    return order_id


async def shown(memory: InMemory, order_id: str) -> BoardEntry | None:
    entry = await memory.entry(BOARD, order_id)
    return None if entry is None else entry.state


async def test_an_order_that_is_on_the_board_follows_its_events(memory: InMemory) -> None:
    order_id = await placed()
    await memory.deliver()
    assert await shown(memory, order_id) == AFTER_EACH[0]
    await add_line(order_id)
    await memory.deliver()
    assert await shown(memory, order_id) == AFTER_EACH[1]
    await ship(order_id)
    await memory.deliver()
    assert await shown(memory, order_id) == AFTER_EACH[2]
    entry = await memory.entry(BOARD, order_id)
    assert entry is not None
    assert (entry.last_sequence, entry.healed) == (3, 0), "each event led to what the order shows"
    document = memory.read(order_id, order_id)
    assert document is not None
    assert entry_of(document["data"]) == AFTER_EACH[2]


async def test_what_the_board_cannot_read_is_read_from_the_order(memory: InMemory) -> None:
    order_id = await placed()
    await memory.deliver()
    await add_line(order_id)
    broken = message(("order", order_id), "OrderLineAddedEvent", 2, data={"line": {"pieces": 5}})
    assert await memory.deliver(broken, to=BOARD) == []
    assert await shown(memory, order_id) == AFTER_EACH[1]


@pytest.mark.parametrize(
    "lost", [0, 1]
)  # after the last one no event shows that it is missing: the walk finds it
async def test_the_board_heals_a_lost_event_and_ignores_repeated_ones(memory: InMemory, lost: int) -> None:
    order_id = await shipped()
    events = [event for number, event in enumerate(memory.events) if number != lost]
    for event in events:
        assert await memory.deliver(event, event, to=BOARD) == []
    entry = await memory.entry(BOARD, order_id)
    assert entry is not None
    assert (entry.last_sequence, entry.state) == (3, AFTER_EACH[2])


async def test_readers_get_the_board_by_customer(memory: InMemory) -> None:
    order_id = await shipped()
    await placed("Adatum")
    await memory.deliver()
    page = await board().page(None, 10, None)
    assert [each.state.customer for each in page.items] == ["Adatum", "Contoso"]
    page = await board().page(Status.SHIPPED, 10, None)
    assert [each.id for each in page.items] == [order_id]
