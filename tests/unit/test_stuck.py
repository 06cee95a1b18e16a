"""What is stuck is one list over all stores: paged through each of them, and a verb finds the store of an id."""

from datetime import timedelta

import pytest

from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.inbox.effect import EffectInbox
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.operations.stuck import Retried, Stuck, StuckKind, StuckList
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import NotInTheWay, NotStuck, StillUnsendable, UnknownContinuation
from cosmos_outbox.outbox.feed import Poison
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.contacts import NOON
from tests.support.feed import contact_key, event_document
from tests.support.feed import read as read_document
from tests.support.inbox import FakeSetAside, delivery, event, read
from tests.support.memory import committed

A = contact_key("a")


class World:
    """Two events of one contact that are parked, and one message that each of two subscribers has set aside."""

    def __init__(self, lot: CosmosParkingLot) -> None:
        self.lot, self.publisher, self.applied = lot, BusPublisher(), list[int | None]()
        self.board, self.mails = FakeSetAside(), FakeSetAside()
        parking = Parking(lot, self.publisher, committed(lot), clock=lambda: NOON + timedelta(hours=1))
        self.list = StuckList(
            parking, {"board": self._retrier(self.board), "mails": self._retrier(self.mails)}
        )

    def _retrier(self, records: FakeSetAside) -> Retrier:
        return Retrier(read, self._apply, records, timedelta(days=1), lambda: NOON)

    async def _apply(self, received: Event) -> None:
        self.applied.append(received.sequence)

    async def park(self) -> None:
        first, second = (read_document(event_document("a", number)) for number in (1, 2))
        await self.lot.park(AggregateBlock(A).blocked_by(first, "too large", [], NOON), [first, second])

    async def set_aside(self) -> None:
        for number, records in enumerate((self.board, self.mails), 1):
            message = delivery(event(number), number)
            record = Record.of(message, event(number), RecordState.REFUSED, "no such order", NOON)
            await records.add(record)

    async def ids(self) -> list[str]:
        return [each.id for each in (await self.list.page(100, None)).items]


@pytest.fixture
async def world(lot: CosmosParkingLot) -> World:
    made = World(lot)
    await made.park()
    await made.set_aside()
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
async def test_the_pages_of_all_stores_are_one_list(world: World, size: int) -> None:
    found: list[Stuck] = []
    token, pages = None, 0
    while True:
        page = await world.list.page(size, token)
        found += page.items
        pages, token = pages + 1, page.continuation_token
        assert len(page.items) == size or token is None, "a page that another one follows is full"
        if token is None:
            break
    assert [(each.state, each.subscriber, each.sequence) for each in found] == [
        ("inTheWay", None, 1), ("waiting", None, 2), ("refused", "board", 1), ("refused", "mails", 2)
    ]  # fmt: skip
    assert all(each.payload is None for each in found), "a list has nothing personal"
    assert pages <= -(-4 // size) + 1


@pytest.mark.parametrize("token", ["", "1", "3.", "-1.", "x.", "\u0660.", "9" * 5_000 + "."])
async def test_a_token_of_no_list_is_refused(world: World, token: str) -> None:
    with pytest.raises(UnknownContinuation):
        await world.list.page(10, token)


async def test_a_retry_of_an_event_sends_all_of_its_aggregate(world: World) -> None:
    _, second, *_ = await world.ids()
    assert await world.list.retry(second) == Retried(2, done=True)
    assert [of for of, _ in world.publisher.sent] == [A.id, A.id]
    with pytest.raises(NotStuck):
        await world.list.retry(second)


async def test_a_retry_that_is_refused_says_why_and_leaves_the_event(world: World) -> None:
    world.publisher.limit = 1
    first, *_ = await world.ids()
    with pytest.raises(StillUnsendable):
        await world.list.retry(first)
    assert first in await world.ids()


async def test_a_document_of_no_aggregate_can_only_be_discarded(world: World) -> None:
    await world.lot.park_alone(Poison("lost", None, "it names no aggregate"))
    [alone] = [each.id for each in (await world.list.page(9, None)).items if each.state == "alone"]
    with pytest.raises(NotInTheWay, match="discard it"):
        await world.list.retry(alone)
    await world.list.discard(alone, "made by hand")
    assert alone not in await world.ids()


async def test_a_message_is_found_in_the_store_of_its_subscriber(world: World) -> None:
    *_, of_mails = await world.ids()
    shown = await world.list.show(of_mails)
    assert (shown.kind, shown.subscriber) == (StuckKind.MESSAGE, "mails")
    assert shown.payload == {"body": event(2).id, "properties": {}}
    for _ in range(2):  # the answer to the first call may have been lost
        assert await world.list.retry(of_mails) == Retried(1)
    assert world.applied == [2]
    with pytest.raises(NotStuck):
        await world.list.show(of_mails)


async def test_what_was_discarded_keeps_its_first_reason(world: World) -> None:
    first, _, of_board, _ = await world.ids()
    for reason in ("ticket 1", "of another operator"):
        await world.list.discard(first, reason)
        await world.list.discard(of_board, reason)
    [given_up] = (await world.list.page(10, None, discarded=True)).items
    assert (given_up.id, given_up.view()["discardReason"]) == (first, "ticket 1")
    assert world.board.records[of_board].reason == "ticket 1"


@pytest.mark.parametrize("stuck_id", ["", "7", "0" * 32, "0" * 33, "../../contacts", "G" * 32])
async def test_an_id_of_nothing_is_answered_so_by_each_verb(world: World, stuck_id: str) -> None:
    for verb in (world.list.show(stuck_id), world.list.retry(stuck_id), world.list.discard(stuck_id, "r")):
        with pytest.raises(NotStuck, match="take an id from the list"):
            await verb


async def test_what_an_effect_left_is_reported_as_an_effect(lot: CosmosParkingLot) -> None:
    async def nothing(received: Event) -> None:
        """Is not called."""

    world = World(lot)
    await world.set_aside()
    asked = object.__new__(EffectInbox)
    retrier = Retrier(read, nothing, world.mails, timedelta(days=1), asked=asked)
    [item] = (await StuckList(None, {"mails": retrier}).page(10, None)).items
    assert (item.kind, item.view()["kind"]) == (StuckKind.EFFECT, "effect")
