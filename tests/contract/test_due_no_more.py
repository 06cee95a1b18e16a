"""What was found due and is not any more, or cannot be met at all, is left as it is, and nobody is alarmed by it."""

from collections.abc import AsyncIterator

import pytest
from azure.cosmos.aio import CosmosClient

from devstack.testing import Service as Server
from tests.support.azure import database_of
from tests.support.emulators import Gap
from tests.support.held import KINDS, Seats
from tests.support.offers import NOON

pytestmark = pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)


@pytest.fixture
async def seats(cosmos_server: Server) -> AsyncIterator[Seats]:
    service = KINDS["hierarchical"]
    async with (
        database_of(cosmos_server, service) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield Seats(client, database.id, service)


async def test_what_was_paid_after_it_was_found_is_no_failure(seats: Seats) -> None:
    name = await seats.hold()
    documents = seats.instance().documents
    [[found]] = [page async for page in documents.pages(NOON)]
    await seats.pay(name)
    assert await documents.meet(found, NOON) is False
    assert await seats.history(name) == ["SeatHeld", "SeatPaid"]


async def test_a_document_in_no_partition_that_a_transaction_can_be_in_is_not_due(
    seats: Seats, caplog: pytest.LogCaptureFixture
) -> None:
    """Others stored it, with null in its key."""
    seat = seats.seat("keyless", NOON.isoformat())
    await seats.proxy.create_item(seat | {"row": None})
    name = await seats.hold()
    assert await seats.instance().meet() == 1
    assert await seats.history(name) == ["SeatHeld", "SeatFreed"]
    assert "keyless" not in caplog.text
