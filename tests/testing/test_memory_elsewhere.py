"""The other two kinds of service in memory: one with documents of its own, and one that only subscribes."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from cosmos_outbox import (
    After,
    DocumentSource,
    EntrySchema,
    Event,
    ExistingContainer,
    HttpApi,
    Named,
    Names,
    Origin,
    Service,
    TolerantReader,
)
from cosmos_outbox.testing import InMemory, in_memory, message
from examples.subscriber.sqlite_store import SqliteFile
from tests.testing.bookings import Row, project, row_of

ORIGIN = Origin("request-1")
tenants = Service(
    "tenants",
    names=Names(database="d", container="bookings", topic="booking-events"),
    own=ExistingContainer(["/tenantId", "/bookingId"], {"booking": "/lastSequence"}),
)
KEY = ["acme", "b-1"]
NEW = {"id": "b-1", "tenantId": "acme", "bookingId": "b-1", "type": "booking", "seats": 1}


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(tenants) as made:
        yield made


async def book() -> str | None:
    async with tenants().outbox.transaction(KEY, origin=ORIGIN) as tx:
        tx.create(NEW)
        tx.event("BookingMade", of=("booking", "b-1"), data={"seats": 1})
    return tx.etag("b-1")


class Seats(TolerantReader):
    """What the board of trips shows."""

    seats: int


def seats_after(entry: Seats, event: Event) -> After[Seats] | None:
    return After(Seats(seats=event.data["seats"])) if "seats" in event.data else None


BOARD = tenants.read_model(
    "trip-board",
    of="booking",
    form=EntrySchema(Seats, search={}, sorted_by=[]),
    state_of=Seats.model_validate,
    project=seats_after,
    source=DocumentSource({"/type": "booking"}, id="/bookingId"),
)


async def test_a_read_model_of_documents_of_ones_own_is_healed_from_them(memory: InMemory) -> None:
    etag = await book()
    async with tenants().outbox.transaction(KEY) as tx:
        tx.replace({**NEW, "seats": 4, "lastSequence": 1}, if_match=str(etag))
        tx.event("BookingGrown", of=("booking", "b-1"), data={"by": 3})
    [made, grown] = memory.events
    assert await memory.deliver(grown) == []
    entry = await memory.entry(BOARD, "b-1")
    assert entry is not None
    assert (entry.state, entry.last_sequence) == (Seats(seats=4), 2)
    assert await memory.deliver(made) == []
    assert await memory.entry(BOARD, "b-1") == entry


FORM = EntrySchema(Row, search={"title": lambda row: row.title}, sorted_by=["title"])
STORE = SqliteFile(Named("BOARD_FILE"))
api = HttpApi(Named("BOOKINGS_API"), answers_newest=True)
asking = Service("asking", publishes=False, store=STORE)
asked = asking.read_model("asked", of="booking", form=FORM, project=project, state_of=row_of, source=api)


def moved(sequence: int, seats: int) -> Any:
    return message(("booking", "7"), "SeatsChanged", sequence, data={"seats": seats})


def shown(seats: int, sequence: int) -> Mapping[str, Any]:
    return {"title": "A table", "seats": seats, "sequence": sequence}


async def test_a_subscriber_asks_its_publisher_for_what_it_missed() -> None:
    async with in_memory(asking) as memory:
        memory.publisher["7"] = shown(1, 1)
        await memory.deliver(message(("booking", "7"), "BookingCreated", 1, data={"title": "A table"}))
        memory.publisher["7"] = shown(3, 3)
        assert await memory.deliver(moved(3, 3)) == []
        entry = await memory.entry(asked, "7")
        assert entry is not None
        assert (entry.state, entry.last_sequence, entry.healed) == (Row(title="A table", seats=3), 3, 1)
        page = await asking().read_model(asked).listing.page([], "title", 10, None)
        assert [each.sequence for each in page.items] == [3]
        del memory.publisher["7"]
        await memory.deliver(moved(5, 5))
        entry = await memory.entry(asked, "7")
        assert entry is not None
        assert entry.deleted
