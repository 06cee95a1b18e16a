"""Events are erased only after the relay has forwarded them, also where the replica that is asked lags."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from changefeed import ChangeFeedProcessor, ProcessorOptions
from devstack.testing import Service, eventually, running
from infra.bootstrap import Application, wire
from infra.contacts.erasing import wire_eraser
from infra.erasing import Eraser
from infra.errors import NotForwardedYet
from infra.settings import Settings, load
from outbox.aggregate import AggregateKey
from tests.support.azure import contacts_database
from tests.support.contacts import DETAILS, ORIGIN

BROKER = "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(Service("cosmos", tmp_path_factory.mktemp("cosmos") / "data", "--faults")) as service:
        yield service


@pytest.fixture
async def application(cosmos: Service) -> AsyncIterator[Application]:
    async with contacts_database(cosmos) as database:
        application = wire(
            load({"COSMOS": cosmos.connection_string, "COSMOS_DATABASE": database.id, "SERVICEBUS": BROKER})
        )
        async with application.outbox.resources:
            yield application


def eraser_of(application: Application, settings: Settings) -> Eraser:
    async def collected() -> int:
        return 0

    return replace(wire_eraser(settings, application), collect=collected)


async def erased(eraser: Eraser, contact_id: str, *, patience_seconds: float) -> None:
    async for _ in eraser.erase(AggregateKey("contact", contact_id), patience_seconds=patience_seconds):
        pass


def relay(application: Application) -> ChangeFeedProcessor:
    async def forward(*_: object) -> None:
        """All of it."""

    outbox = application.outbox
    return ChangeFeedProcessor(
        outbox.feed, outbox.leases, forward, instance_name="relay", lease_prefix=outbox.reading.lease_prefix,
        options=ProcessorOptions(poll_interval=0.05, acquire_interval=0.1),
    )  # fmt: skip


async def caught_up(application: Application) -> bool:
    status = await application.outbox.observer.status()
    return bool(status.leases) and not any(lease.lag for lease in status.leases)


async def test_that_no_event_waits_is_not_believed_of_a_replica_that_lags(
    application: Application, cosmos: Service
) -> None:
    """Another process has just deleted the contact: this one has no session that forces its replica to catch up."""
    contacts = application.contacts
    other = (await contacts.create(DETAILS, ORIGIN)).aggregate.id
    async with relay(application):
        await eventually(lambda: caught_up(application))
    contact_id = (await contacts.create(DETAILS, ORIGIN)).aggregate.id
    await contacts.delete(contact_id, ORIGIN)
    settings = load(
        {
            "COSMOS": cosmos.connection_string,
            "COSMOS_DATABASE": application.outbox.feed.container_link.split("/")[1],
            "SERVICEBUS": BROKER,
        }
    )
    eraser = eraser_of(wire(settings), settings)
    async with eraser.outbox.resources:
        await cosmos.faults.add("lag", container="contacts", seconds=600, count=None)
        with pytest.raises(NotForwardedYet):
            await erased(eraser, str(contact_id), patience_seconds=0)
        await cosmos.faults.clear()
        async with relay(application):
            await erased(eraser, str(contact_id), patience_seconds=20)
        held = await eraser.partition.look(str(contact_id))
    assert held.newest_event_at is not None, "the event of the deletion stays"
    assert (await contacts.read(other, ORIGIN)).aggregate.details == DETAILS
