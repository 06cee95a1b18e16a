"""Events are erased only after the relay has forwarded them, also where the replica that is asked lags."""

import base64
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_changefeed import ChangeFeedProcessor, ProcessorOptions, StartFrom
from cosmos_outbox.cosmos.inbox.set_aside import CosmosSetAside
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.cosmos.upkeep.erasure import SetAsideEraser
from cosmos_outbox.inbox.decision import Complete, Done
from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.inbox.entry import Entry
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.set_aside import Delivery, Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.erasing import Eraser
from cosmos_outbox.settings.errors import NotForwardedYet
from cosmos_outbox.wiring.erasing import wire_eraser
from devstack.testing import Service, eventually, running
from infra.bootstrap import Application, service, wire
from tests.support.azure import SET_ASIDE, contacts_database
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.losses import ProcessDied
from tests.support.use_cases import contacts_of

BROKER = "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(Service("cosmos", tmp_path_factory.mktemp("cosmos") / "data", "--faults")) as service:
        yield service


@pytest.fixture
async def application(cosmos: Service) -> AsyncIterator[Application]:
    async with contacts_database(cosmos) as database:
        application = wire(
            {"COSMOS": cosmos.connection_string, "COSMOS_DATABASE": database.id, "SERVICEBUS": BROKER}
        )
        async with application.outbox.resources:
            yield application


def eraser_of(application: Application) -> Eraser:
    async def collected() -> Collected:
        return Collected(0, emptied=True)

    return replace(wire_eraser(application.wired, service.erasables[0]), collect=collected)


async def erased(eraser: Eraser, contact_id: str, *, patience_seconds: float) -> None:
    async for _ in eraser.erase(AggregateKey("contact", contact_id), patience_seconds=patience_seconds):
        pass


def relay(application: Application) -> ChangeFeedProcessor:
    async def forward(*_: object) -> None:
        """All of it."""

    outbox = application.outbox
    return ChangeFeedProcessor(
        outbox.feed, outbox.leases, forward, instance_name="relay", lease_prefix=outbox.reading.lease_prefix,
        options=ProcessorOptions(poll_interval=0.05, acquire_interval=0.1, start=StartFrom.beginning()),
    )  # fmt: skip


async def caught_up(application: Application) -> bool:
    status = await application.outbox.observer.status()
    return bool(status.leases) and not any(lease.lag for lease in status.leases)


async def test_that_no_event_waits_is_not_believed_of_a_replica_that_lags(
    application: Application, cosmos: Service
) -> None:
    """Another process has just deleted the contact: this one has no session that forces its replica to catch up."""
    contacts = contacts_of(application)
    other = (await contacts.create(DETAILS, ORIGIN)).aggregate.id
    async with relay(application):
        await eventually(lambda: caught_up(application))
    contact_id = (await contacts.create(DETAILS, ORIGIN)).aggregate.id
    await contacts.delete(contact_id, ORIGIN)
    other_process = wire(
        {
            "COSMOS": cosmos.connection_string,
            "COSMOS_DATABASE": application.outbox.feed.container_link.split("/")[1],
            "SERVICEBUS": BROKER,
        }
    )
    eraser = eraser_of(other_process)
    async with other_process.outbox.resources:
        await cosmos.faults.add("lag", container="contacts", seconds=600, count=None)
        with pytest.raises(NotForwardedYet):
            await erased(eraser, str(contact_id), patience_seconds=0)
        await cosmos.faults.clear()
        async with relay(application):
            await erased(eraser, str(contact_id), patience_seconds=20)
        held = await eraser.partition.look(str(contact_id))
    assert held.has_events, "the event of the deletion stays"
    assert (await contacts.read(other, ORIGIN)).aggregate.details == DETAILS


async def test_an_event_that_waits_behind_a_clock_that_was_turned_back_is_not_taken_for_forwarded(
    application: Application, cosmos: Service
) -> None:
    """The oldest change that waits was stored at a later time than the person's events behind it in the feed."""
    contacts = contacts_of(application)
    await contacts.create(DETAILS, ORIGIN)
    async with relay(application):
        await eventually(lambda: caught_up(application))
    await contacts.create(DETAILS, ORIGIN)
    eraser = eraser_of(application)
    try:
        await cosmos.faults.turn_clock(-600)
        contact_id = (await contacts.create(DETAILS, ORIGIN)).aggregate.id
        await contacts.delete(contact_id, ORIGIN)
        with pytest.raises(NotForwardedYet):
            await erased(eraser, str(contact_id), patience_seconds=0)
        async with relay(application):
            await erased(eraser, str(contact_id), patience_seconds=20)
    finally:
        await cosmos.faults.turn_clock(0)


class Watched(Container):
    """Notes the order of the pages that are read and the transactions that are written."""

    calls: list[str]

    async def page(self, *arguments: Any, **named: Any) -> tuple[list[Item], str | None]:
        self.calls.append("read")
        return await super().page(*arguments, **named)

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        done = await super().execute(partition_key, writes)
        self.calls.append(f"write {len(writes)}")
        return done


async def test_a_first_event_that_is_in_somebodys_hands_brings_nothing_of_an_erased_person_back(
    application: Application,
) -> None:
    """The event of the deletion was lost, and no entry was made before."""
    contact_id = (await contacts_of(application).create(DETAILS, ORIGIN)).aggregate.id
    key = AggregateKey("contact", str(contact_id))
    held = Event(
        "1",
        key,
        "ContactCreatedEvent",
        1,
        utc_now(),
        {"contact": {**DETAILS.model_dump(mode="json", by_alias=True), "createdAt": "2026-03-01T12:00:00Z"}},
    )
    assert application.read_model.inbox.first is not None
    assert application.read_model.inbox.first(held) is not None
    async with relay(application):
        await eventually(lambda: caught_up(application))
        await erased(eraser_of(application), key.id, patience_seconds=20)
    assert await application.read_model.inbox.handle(held) == Complete(Done.DELETED)
    found = await application.read_model.inbox.entries.newest(key)
    assert found is not None
    assert found.entry == Entry(2, None, None, healed=1)


async def test_bodies_of_messages_that_nobody_can_read_are_looked_at_page_by_page(cosmos: Service) -> None:
    """Many such messages, each as large as a message may be, are more than a process can hold."""
    async with (
        contacts_database(cosmos) as database,
        CosmosClient.from_connection_string(cosmos.connection_string) as client,
    ):
        container = Watched(client, database.id, SET_ASIDE)
        container.calls = []
        records = CosmosSetAside(container, "s", "t", closed_ttl_seconds=600)
        for number in range(120):
            body = b"of somebody, " + (b"a-person" if number % 2 else b"another")
            message = Delivery("s", f"m{number}", number, body, {})
            await records.add(Record.of(message, None, RecordState.REFUSED, "no JSON", utc_now()))
        container.calls.clear()
        assert await SetAsideEraser(container, "s", 600).erase("a-person") == 60
        mark, *written = [call for call in container.calls if call.startswith("write")]
        assert container.calls == [
            mark, "read", written[0], "read", written[1], "read", written[2], "read", "read"
        ]  # fmt: skip
        left = [await records.get(each.id) for each in (await records.page(100, None)).items]
        assert [each.delivery is not None and each.delivery.body[-7:] for each in left] == [b"another"] * 60


PERSON, OTHER = AggregateKey("contact", "a-person"), AggregateKey("contact", "another")
NAME = b"Quirina"


def message(key: AggregateKey, number: int) -> Delivery:
    return Delivery("s", f"m{number}", number, NAME + b" is " + key.id.encode(), {"id": "x"})


def record(key: AggregateKey, number: int, state: RecordState) -> Record:
    """A message about an aggregate; one that is refused is none that anybody can read."""
    waits = state is RecordState.WAITING
    event = Event(f"e{number}", key, "Changed", number, utc_now(), {}) if waits else None
    return Record.of(message(key, number), event, state, "a reason", utc_now())


@dataclass
class SetAsides:
    """The records of one subscription, and who erases them."""

    container: Container
    records: CosmosSetAside
    eraser: SetAsideEraser

    async def stored(self, each: Record) -> tuple[str, bytes | None, int]:
        """State, message and TTL of a record."""
        item = await self.container.read(each.id, "s")
        assert item is not None
        body = item["body"] and base64.b64decode(item["body"])
        return item["state"], body, item["ttl"]


@pytest.fixture
async def set_asides(cosmos: Service) -> AsyncIterator[SetAsides]:
    async with (
        contacts_database(cosmos) as database,
        CosmosClient.from_connection_string(cosmos.connection_string) as client,
    ):
        container = Container(client, database.id, SET_ASIDE)
        records = CosmosSetAside(container, "s", "t", closed_ttl_seconds=600)
        yield SetAsides(container, records, SetAsideEraser(container, "s", 600))


@pytest.mark.parametrize("state", [RecordState.WAITING, RecordState.REFUSED])
async def test_of_an_erased_person_no_record_is_stored_that_a_timer_or_a_late_message_makes(
    set_asides: SetAsides, state: RecordState
) -> None:
    """A timer has taken a dead letter, the eraser finds the queue and the records empty, then the timer goes on."""
    assert await set_asides.eraser.erase(PERSON.id) == 0
    of_person, of_other = record(PERSON, 1, state), record(OTHER, 2, state)
    for each in (of_person, of_other):
        await set_asides.records.add(each)
    assert await set_asides.stored(of_person) == ("discarded", None, 600)
    assert (await set_asides.stored(of_other))[:2] == (state.value, message(OTHER, 2).body)
    assert [each.id for each in (await set_asides.records.page(10, None)).items] == [of_other.id]
    assert await set_asides.eraser.erase(PERSON.id) == 0, "there is nothing left to erase"


@pytest.mark.parametrize("state", [RecordState.WAITING, RecordState.REFUSED])
async def test_a_record_whose_maker_died_before_it_looked_is_emptied_when_the_message_comes_again(
    set_asides: SetAsides, monkeypatch: pytest.MonkeyPatch, state: RecordState
) -> None:
    await set_asides.eraser.erase(PERSON.id)
    each = record(PERSON, 1, state)

    async def dies(*_: object, **__: object) -> None:
        raise ProcessDied

    with monkeypatch.context() as death:
        death.setattr(set_asides.container, "read", dies)
        death.setattr(set_asides.container, "page", dies)
        with pytest.raises(ProcessDied):
            await set_asides.records.add(each)
    assert (await set_asides.stored(each))[1] is not None
    await set_asides.records.add(each)
    assert await set_asides.stored(each) == ("discarded", None, 600)


async def test_a_record_that_the_timer_changes_while_it_is_emptied_is_emptied_all_the_same(
    set_asides: SetAsides, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_asides.eraser.erase(PERSON.id)
    each, read, tried = record(PERSON, 1, RecordState.WAITING), set_asides.container.read, list[str]()

    async def overtaken(item_id: str, partition_key: str) -> Item | None:
        found = await read(item_id, partition_key)
        if item_id == each.id and not tried:
            tried.append(item_id)
            await set_asides.records.change(
                await set_asides.records.get(each.id), RecordState.WAITING, "fails", attempts=1
            )
        return found

    monkeypatch.setattr(set_asides.container, "read", overtaken)
    await set_asides.records.add(each)
    assert tried
    assert await set_asides.stored(each) == ("discarded", None, 600)
