"""The board's entry after the events is the entry of the order itself, whatever is lost or comes again."""

import json
from datetime import UTC, datetime

import pytest

from cosmos_outbox.inbox.decision import Because, Done, Put
from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.inbox.state import StateInbox
from examples.orders.board import BoardEntry, Status, entry_of, project
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order
from examples.orders.service import BOARD
from tests.support.inbox import FakeEntries, FakeSource
from tests.support.reading import reader_of

READER = reader_of(BOARD)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def placed() -> Order:
    return Order.place(NewOrder(customer="Contoso", lines=(Line(sku="A-1", quantity=2),)), at=NOON)


def history() -> tuple[list[Event], list[Found[BoardEntry]]]:
    """An order's events as messages, and the order after each of them as its own document shows it."""
    order, events, states = placed(), [], []
    for change in (
        None,
        lambda o: o.add_line(Line(sku="B-2", quantity=5), at=NOON),
        lambda o: o.ship(at=NOON),
    ):
        if change is not None:
            change(order)
        made = order.changes()
        assert made is not None
        for each in made.events:
            body = each.model_dump_json(by_alias=True).encode()
            event = READER.read(Delivery("order-board", "m", 1, body, {"aggregateType": "order"}))
            assert event is not None
            events.append(event)
        stored = json.loads(made.state.model_dump_json(by_alias=True))
        states.append(Found(stored["lastSequence"], entry_of(stored)))
        order = Order.load(made.state)
    return events, states


def test_each_event_leads_to_what_the_order_shows() -> None:
    events, states = history()
    assert [found.state for found in states] == [
        BoardEntry(customer="Contoso", status=Status.PLACED, total=2),
        BoardEntry(customer="Contoso", status=Status.PLACED, total=7),
        BoardEntry(customer="Contoso", status=Status.SHIPPED, total=7),
    ]
    for event, before, after in zip(events[1:], states, states[1:], strict=False):
        assert before.state is not None
        projected = project(before.state, event)
        assert projected is not None
        assert projected.state == after.state


def test_what_the_board_cannot_read_is_read_from_the_order() -> None:
    events, states = history()
    assert states[0].state is not None
    broken = Event(**{**vars(events[1]), "data": {"line": {"pieces": 5}}})
    assert project(states[0].state, broken) is None
    assert project(states[0].state, events[0]) is None, "an entry is made from the order alone"


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_lost_event_is_made_up_for_and_one_that_comes_again_changes_nothing(lost: int) -> None:
    events, states = history()
    entries: FakeEntries[BoardEntry] = FakeEntries()
    source: FakeSource[BoardEntry] = FakeSource()
    inbox = StateInbox(entries, source, project, lambda: NOON)
    results = []
    for event, found in zip(events, states, strict=True):
        source.change(event.aggregate, found)
        if event.sequence != lost:
            results.append(await inbox.handle(event))
            again = await inbox.handle(event)
            assert again.why is Done.APPLIED_BEFORE  # type: ignore[union-attr]  # a Put would be a second application
    healed = [result.because for result in results if isinstance(result, Put)]
    assert healed == ([Because.NEW, None] if lost == 1 else [Because.NEW, Because.GAP])
    entry = entries.of(events[0].aggregate)
    assert entry is not None
    assert (entry.last_sequence, entry.state) == (3, states[-1].state)
