"""The alarms see a relay that is stopped while its partitions are split, or whose lease documents are deleted."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.cosmos.aio import DatabaseProxy

from cosmos_changefeed import ChangeFeedProcessor
from cosmos_outbox.cosmos.relay.forwarding import RelayFailures
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from devstack.testing import Service, eventually
from tests.changefeed.support import FAST
from tests.support.azure import CONTACTS, LEASES, contacts_database
from tests.support.feed import event_document

PARTITIONS = 2
NAMES = [f"contact {number}" for number in range(12)]


@pytest.fixture
async def database(cosmos: Service) -> AsyncIterator[DatabaseProxy]:
    async with contacts_database(cosmos) as made:
        yield made


@pytest.fixture
async def observer(database: DatabaseProxy, lot: CosmosParkingLot) -> RelayObserver:
    """A relay has forwarded the first event of each contact, and was stopped; then each got another one."""
    feed, leases = (database.get_container_client(name) for name in (CONTACTS, LEASES))
    observer = RelayObserver(
        feed,
        leases,
        lot,
        "relay-",
        event_ttl_seconds=1000,
        failures=RelayFailures(leases, "relay-failures.test", 1000),
        mending_patience_seconds=0.3,
    )
    for name in NAMES:
        await feed.create_item(event_document(name, 1))
    forwarded: list[str] = []
    async with relay(observer, forwarded):
        await eventually(lambda: len(forwarded) == len(NAMES))
        await eventually(lambda: nothing_waits(observer))
    for name in NAMES:
        await feed.create_item(event_document(name, 2))
    return observer


def relay(observer: RelayObserver, forwarded: list[str]) -> ChangeFeedProcessor:
    """It never makes a lease again, like the relay function in Azure."""

    async def forward(changes: Any, _: object) -> None:
        forwarded.extend(change["id"] for change in changes)

    return ChangeFeedProcessor(
        observer.feed,
        observer.leases,
        forward,
        instance_name="relay",
        lease_prefix=observer.lease_prefix,
        options=FAST,
    )


async def nothing_waits(observer: RelayObserver) -> bool:
    return all(lease.lag == 0 for lease in (await observer.status()).leases)


async def delete_leases(observer: RelayObserver, *endings: str) -> None:
    """Those whose ids end so; without an ending all, and the marker that they were made stays."""
    documents = [document async for document in observer.leases.read_all_items()]
    for document in documents:
        if document["id"].endswith(endings or ("",)) and not document["id"].endswith(".info"):
            await observer.leases.delete_item(document["id"], partition_key=document["id"])


@pytest.mark.parametrize("age", [pytest.param(400, marks=pytest.mark.long), 600])
async def test_a_split_while_the_relay_is_stopped_hides_no_waiting_event(
    cosmos: Service, database: DatabaseProxy, observer: RelayObserver, age: int
) -> None:
    children = await cosmos.faults.split(database.id, CONTACTS, "0")
    await cosmos.faults.split(database.id, CONTACTS, children[1])
    later = replace(observer, clock=lambda: utc_now() + timedelta(seconds=age))

    status = await later.watch()

    assert sorted(lease.lease for lease in status.leases) == ["0", "1"]
    assert all(age <= (lease.oldest_waiting_seconds or 0) < age + 60 for lease in status.leases)
    assert status.missing == []
    assert (status.late, status.events_at_risk) == (True, age == 600)


async def test_one_missing_lease_is_late_though_others_are_there(
    observer: RelayObserver, caplog: pytest.LogCaptureFixture
) -> None:
    await delete_leases(observer, "..1")

    status = await observer.status()

    assert [lease.lease for lease in status.leases] == ["0"]
    assert status.missing == ["1"]
    assert (status.late, status.events_at_risk) == (True, True)
    assert caplog.records == [], "only the timer logs"


async def test_a_split_and_a_missing_lease_at_once(
    cosmos: Service, database: DatabaseProxy, observer: RelayObserver
) -> None:
    """The lease of one partition covers its children; of the other partition's children none has a lease."""
    await cosmos.faults.split(database.id, CONTACTS, "0")
    children = await cosmos.faults.split(database.id, CONTACTS, "1")
    await delete_leases(observer, "..1")

    assert sorted((await observer.status()).missing) == sorted(children)


async def test_the_timer_remakes_missing_leases_for_a_relay_without_mending(
    observer: RelayObserver, caplog: pytest.LogCaptureFixture
) -> None:
    forwarded: list[str] = []
    async with relay(observer, forwarded):
        await eventually(lambda: len(set(forwarded)) == len(NAMES))
        await delete_leases(observer)
        for name in NAMES:
            await observer.feed.create_item(event_document(name, 3))

        status = await observer.watch()

        assert (status.missing, status.late) == (["0", "1"], True)
        # Nothing says how far the relay was: all that is stored comes.
        everything = {event_document(name, number)["id"] for name in NAMES for number in (1, 2, 3)}
        await eventually(lambda: set(forwarded) == everything)
    assert (await observer.status()).missing == []
    assert "no lease" in caplog.text
    assert "it is made again and reads from the beginning" in caplog.text
    [mended] = {
        record.levelno for record in caplog.records if record.name == "cosmos_changefeed.lease_repair"
    }
    assert mended == logging.ERROR


async def test_a_timer_that_cannot_make_a_lease_says_so_and_the_next_makes_it(
    cosmos: Service, observer: RelayObserver
) -> None:
    await delete_leases(observer)
    # The SDK does not repeat a 449.
    await cosmos.faults.add("retry-with", operation="create", container=LEASES, count=1)
    with pytest.raises(Unavailable):
        await observer.watch()
    assert (await observer.status()).missing == ["0", "1"]

    await observer.watch()

    assert (await observer.status()).missing == []


async def test_a_lease_that_cannot_be_used_is_named(observer: RelayObserver) -> None:
    [document, *_] = [each async for each in observer.leases.read_all_items() if each["id"].endswith("..0")]
    await observer.leases.replace_item(document["id"], {**document, "ContinuationToken": "no LSN"})

    with pytest.raises(Misconfigured, match="no quoted LSN"):
        await observer.status()
