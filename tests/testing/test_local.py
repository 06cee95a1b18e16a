"""A local Azure of a test's own has what services declare, and the deployed code runs against it."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosmos_outbox import Origin, Service, running
from cosmos_outbox.testing import LocalAzure, eventually, message
from tests.testing import bookings
from tests.testing.bookings import Booking, board, service

ORIGIN = Origin("request-1")


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAzure]:
    with LocalAzure(tmp_path_factory.mktemp("azure"), service) as started:
        yield started


async def test_what_a_service_declares_is_there_and_works(azure: LocalAzure) -> None:
    bookings.mailed.clear()
    async with running(service, environment=azure.settings):
        made = (await service().aggregates.create(Booking.create("A table"), ORIGIN)).aggregate

        async def listed() -> bool:
            page = await service().read_model(board).listing.page([], "title", 10, None)
            return [each.id for each in page.items] == [made.aggregate_id]

        await eventually(listed)
        [received] = await azure.receive("watch", 1)
        await eventually(lambda: bookings.mailed == [received.id])
    assert (received.data["action"], received.data["title"]) == ("BookingCreated", "A table")
    assert received.properties["aggregateType"] == "booking"


@pytest.mark.long
async def test_a_relay_of_its_own_forwards_and_is_stopped_started_and_killed(azure: LocalAzure) -> None:
    relay = azure.command("relay", "--service", "tests.testing.bookings")
    wired = service.wire(azure.settings)
    async with wired.resources:
        assert relay.terminate() == 0  # it gives its leases up: those of one that is killed last 15 s
        await wired.aggregates.create(Booking.create("A table"), ORIGIN)
        relay.start()
        assert [each.data["action"] for each in await azure.receive("watch", 1)] == ["BookingCreated"]
    relay.kill()


async def test_a_message_that_a_test_sends_is_received(azure: LocalAzure) -> None:
    sent = message(("booking", "7"), "SeatsChanged", 2, data={"seats": 3})
    await azure.send(sent)
    [received] = await azure.receive("watch", 1)
    assert (received.id, received.data) == (sent.id, sent.data)
    await azure.send(sent)
    began = time.monotonic()
    assert await azure.receive("watch", 1, within=1) == [], "the topic drops what it has seen"
    assert time.monotonic() - began < 8, "so long as it had to wait, and to open and close a connection"


def test_a_program_that_does_not_get_ready_fails_with_its_log(azure: LocalAzure) -> None:
    with pytest.raises(AssertionError, match="no such thing"):
        azure.program(sys.executable, "-c", "raise SystemExit('no such thing')", ready="ready")


@pytest.mark.long
def test_two_services_that_share_a_topic_have_each_its_own(tmp_path: Path) -> None:
    other = Service("others", [], service.names)

    @other.effect("more-mails", of="booking")
    async def mail(_: object) -> None: ...

    with LocalAzure(tmp_path, service, other, watch=()) as azure:
        assert azure.settings.keys() == {"COSMOS", "SERVICEBUS"}
