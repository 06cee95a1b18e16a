"""What is published is what was committed, whatever the host delivers: each way in which the two can differ.

The documents are delivered as the Cosmos DB trigger of Azure Functions delivers them (extension 4.8.2): texts that look
like dates are written anew.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.documents import digest
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.errors import NotDelivered, StillUnsendable
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison
from domain.contact import Contact
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, NOON
from tests.support.feed import EVENTS

DATE = "2024-05-01T10:00:00.000+02:00"
AS_REWRITTEN = "2024-05-01T08:00:00+00:00"


class Counting(Container):
    """Counts reads, and fails as the test asks."""

    reads = 0
    failures: Sequence[Kind] = ()
    stale = 0
    """So many reads see nothing, as on a replica that lags."""

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        self.reads += 1
        if self.failures:
            kind, *self.failures = self.failures
            raise StoreFailed(Failure(kind, "injected"))
        if self.stale and not consistent:
            self.stale -= 1
            return None
        return await super().read(item_id, partition_key, consistent=consistent)


@pytest.fixture
def container(store: CosmosStore) -> Counting:
    counting: Counting = store.container  # type: ignore[assignment]  # it becomes one in the next line
    counting.__class__ = Counting
    return counting


@pytest.fixture
def originals(container: Counting) -> CosmosOriginals:
    return CosmosOriginals(container, EVENTS)


async def committed(store: CosmosStore, description: str) -> Item:
    """The stored document of a creation with this description, as the feed would bring it untouched."""
    contact = Contact.create(DETAILS.model_copy(update={"description": description}), at=NOON)
    async with store.open() as work:
        work.add(contact)
        await work.commit()
    [event] = await store.events(contact.key)
    return {**event.document, "_lsn": 7}


def rewritten(item: Item) -> Item:
    """What the trigger makes of the description."""
    contact = item["data"]["contact"] | {"description": AS_REWRITTEN}
    return item | {"data": item["data"] | {"contact": contact}}


def delivered(item: Item) -> FeedEvent:
    event = EVENTS.event(item)
    assert event is not None
    return event


def description(event: FeedEvent) -> Any:
    assert isinstance(event, OutboxEvent)
    return event.data["contact"]["description"]


async def test_what_was_delivered_as_committed_is_not_read_again(
    store: CosmosStore, originals: CosmosOriginals, container: Counting
) -> None:
    event = delivered(await committed(store, DATE))
    assert await originals.verify([event]) == [event]
    assert container.reads == 0


async def test_what_was_rewritten_is_read_again_and_published_as_committed(
    store: CosmosStore, lot: CosmosParkingLot, originals: CosmosOriginals, container: Counting
) -> None:
    item = await committed(store, DATE)
    [event] = await originals.verify([delivered(rewritten(item))])
    assert description(event) == DATE
    assert (event.lsn, event.sequence) == (7, 1), "the place in the feed is the delivered one's"
    assert originals.reread == 1

    function, worker = BusPublisher(), BusPublisher()
    await Relay(function, lot, originals).forward([delivered(rewritten(item))])
    await Relay(worker, lot, originals).forward([delivered(item)])
    assert function.bodies == worker.bodies
    assert as_sent(item["data"]) in function.bodies


async def test_an_original_is_read_once_for_all_retries_of_its_page(
    store: CosmosStore, lot: CosmosParkingLot, originals: CosmosOriginals, container: Counting
) -> None:
    item = await committed(store, DATE)
    event, publisher = delivered(rewritten(item)), BusPublisher()
    publisher.fail_for.add(item["partitionKey"])
    relay = Relay(publisher, lot, originals)
    for _ in range(3):
        with pytest.raises(NotDelivered):
            await relay.forward([event])
    assert container.reads == 1
    publisher.fail_for.clear()
    await relay.forward([event])
    await relay.forward([event])
    assert container.reads == 2


async def test_a_document_without_a_digest_is_read_again_and_published_as_read(
    store: CosmosStore, originals: CosmosOriginals
) -> None:
    item = await committed(store, DATE)
    old = {name: value for name, value in item.items() if name != "digest" and not name.startswith("_")}
    await store.container.execute(item["partitionKey"], [Write.upsert(old)])
    [event] = await originals.verify([delivered(rewritten(old))])
    assert description(event) == DATE
    assert event.document["digest"] == digest(old), (
        "should it be parked, it can be distinguished from a rewritten one"
    )


async def test_a_broken_document_is_read_again_since_the_host_may_have_broken_it(
    store: CosmosStore, originals: CosmosOriginals
) -> None:
    item = await committed(store, DATE)
    broken = delivered(item | {"data": item["data"] | {"id": "2024-05-01T08:00:00Z"}})
    assert isinstance(broken, Poison)
    [event] = await originals.verify([broken])
    assert description(event) == DATE


@pytest.mark.parametrize("kind", [Kind.PASSING, Kind.NO_CONTAINER])
async def test_an_unreadable_original_makes_its_own_aggregate_wait_only(
    store: CosmosStore, lot: CosmosParkingLot, originals: CosmosOriginals, container: Counting, kind: Kind
) -> None:
    item, other = await committed(store, DATE), await committed(store, "plain")
    container.failures = [kind]
    publisher = BusPublisher()
    relay = Relay(publisher, lot, originals)
    page = [delivered(rewritten(item)), delivered(other)]
    with pytest.raises(NotDelivered, match="1 of 2 aggregates wait: an event's original cannot be read"):
        await relay.forward(page)
    assert publisher.sent == [(other["partitionKey"], other["id"])]
    assert (await lot.page(1, None)).items == []
    await relay.forward(page)
    assert len(publisher.sent) == 2


async def test_an_old_read_is_no_proof_that_the_original_is_gone(
    store: CosmosStore, originals: CosmosOriginals, container: Counting
) -> None:
    item = await committed(store, DATE)
    container.stale = 1
    [event] = await originals.verify([delivered(rewritten(item))])
    assert description(event) == DATE
    originals.forget([event])


async def test_an_original_proven_gone_is_parked_as_unverified_and_never_sent(
    store: CosmosStore, lot: CosmosParkingLot, originals: CosmosOriginals
) -> None:
    item = await committed(store, DATE)
    await store.container.execute(item["partitionKey"], [Write.delete(item["id"])])
    publisher = BusPublisher()
    await Relay(publisher, lot, originals).forward([delivered(rewritten(item))])
    assert publisher.sent == []
    [parked] = (await lot.page(10, None)).items
    assert parked.reason.startswith("unverified: ")
    owner = delivered(item).aggregate
    assert owner is not None
    with pytest.raises(StillUnsendable, match="unverified"):
        await Parking(lot, publisher, originals).replay(owner)


async def test_a_digest_that_does_not_fit_what_is_stored_is_parked_as_unverified(
    store: CosmosStore, originals: CosmosOriginals
) -> None:
    item = await committed(store, "plain")
    forged = {name: value for name, value in rewritten(item).items() if not name.startswith("_")}
    await store.container.execute(item["partitionKey"], [Write.upsert(forged)])
    [event] = await originals.verify([delivered(rewritten(item))])
    assert isinstance(event, Poison)
    assert "its digest does not fit" in event.reason


async def test_a_replay_reads_an_original_mended_after_a_failed_replay(
    store: CosmosStore, lot: CosmosParkingLot, originals: CosmosOriginals
) -> None:
    item = await committed(store, "plain")
    system = {name for name in item if name.startswith("_")}
    whole = {name: value for name, value in item.items() if name not in system}
    await store.container.execute(item["partitionKey"], [Write.upsert(whole | {"data": {"broken": 1}})])
    publisher = BusPublisher()
    event = delivered(whole | {"data": {"broken": 1}})
    assert event.aggregate is not None
    await Relay(publisher, lot, originals).forward([event])
    parking = Parking(lot, publisher, originals)
    with pytest.raises(StillUnsendable):
        await parking.replay(event.aggregate)

    await store.container.execute(item["partitionKey"], [Write.upsert(whole)])
    assert (await parking.replay(event.aggregate)).done
    assert publisher.sent == [(item["partitionKey"], item["id"])]


async def test_a_replay_reads_an_original_mended_while_its_page_still_waits(
    store: CosmosStore, lot: CosmosParkingLot, originals: CosmosOriginals
) -> None:
    """Relay and operator share a process, and what was read for the retries of the page is older than the mending."""
    item, other = await committed(store, "plain"), await committed(store, "other")
    system = {name for name in item if name.startswith("_")}
    whole = {name: value for name, value in item.items() if name not in system}
    await store.container.execute(item["partitionKey"], [Write.upsert(whole | {"data": {"broken": 1}})])
    publisher = BusPublisher()
    publisher.fail_for.add(other["partitionKey"])
    event = delivered(whole | {"data": {"broken": 1}})
    assert event.aggregate is not None
    with pytest.raises(NotDelivered):
        await Relay(publisher, lot, originals).forward([event, delivered(other)])

    await store.container.execute(item["partitionKey"], [Write.upsert(whole)])
    assert (await Parking(lot, publisher, originals).replay(event.aggregate)).done
    assert publisher.sent == [(item["partitionKey"], item["id"])]


async def test_a_pages_originals_are_read_several_at_once(
    store: CosmosStore, originals: CosmosOriginals
) -> None:
    items = [await committed(store, DATE) for _ in range(6)]
    verified = await originals.verify([delivered(rewritten(item)) for item in items])
    assert [event.id for event in verified] == [item["id"] for item in items]
    assert {description(event) for event in verified} == {DATE}
