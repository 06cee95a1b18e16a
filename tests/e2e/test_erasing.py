"""A person's data is erased from every container, and nothing that comes late brings any of it back."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from azure.cosmos.aio import CosmosClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.cli import erase, publish_again
from cosmos_outbox.cli import rebuild as rebuild_directory
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.erasing import ERASING_ERRORS, Eraser
from cosmos_outbox.outbox.errors import AnswerErased
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.idempotency import KeyedRequest
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.parking_lot import ParkingLot
from cosmos_outbox.outbox.republish import RepublishingProgress, Span
from cosmos_outbox.settings.errors import NotErased
from cosmos_outbox.wiring.erasing import AllSetAside, wire_eraser
from devstack.testing import Service, eventually
from domain.values import Company, ContactDetails, Name
from infra.bootstrap import service
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.contacts import ORIGIN
from tests.support.deployed import SUBSCRIPTION, Deployed, deployed, relaying
from tests.support.feed import EVENTS
from tests.support.losses import WHICH_WRITES, Failing, Fate, Loss, ProcessDied
from tests.support.use_cases import contacts_of

PERSON = ("Quirina", "Zabelsky", "quirina@contoso.example", "met at the lake", "Lakeside Ltd")
"""What must be nowhere: names that stand in no other document."""
DETAILS = ContactDetails(
    name=Name(first_name=PERSON[0], last_name="Married"),
    email=PERSON[2],
    description=PERSON[3],
    company=Company(company_name=PERSON[4]),
)
OTHER = ContactDetails(name=Name(first_name="Otto", last_name="Other"), email="otto@contoso.example")


@dataclass
class World(Deployed):
    request: KeyedRequest | None = None
    """That made the newest contact."""

    @property
    def eraser(self) -> Eraser:
        """An eraser that does not wait two seconds for dead letters."""

        async def collected() -> Collected:
            return Collected(0, emptied=True)

        return replace(wire_eraser(self.application.wired, service.erasables[0]), collect=collected)

    async def documents(self) -> list[dict[str, Any]]:
        """Every document of every container."""
        found: list[dict[str, Any]] = []
        async for container in self.database.list_containers():
            proxy = self.database.get_container_client(container["id"])
            found += [dict(item) async for item in proxy.read_all_items()]
        return found

    async def traces(self) -> list[str]:
        """Where the person is named: in a document's text, or in a message that it holds in base64."""
        found = []
        for document in await self.documents():
            text = json.dumps(document) + base64.b64decode(document.get("body") or "").decode()
            found += [
                f"{word} in {document.get('type')}" for word in PERSON if word.casefold() in text.casefold()
            ]
        return found

    async def create(self) -> UUID:
        """A contact, made with an Idempotency-Key."""
        self.request = KeyedRequest("caller", f"key-{uuid4()}", "fingerprint")
        receipt, _ = await contacts_of(self.application).create_once(DETAILS, ORIGIN, self.request)
        return receipt.aggregate.id

    async def rename(self, contact_id: UUID) -> None:
        def revised(before: ContactDetails) -> ContactDetails:
            return before.model_copy(update={"name": Name(first_name=PERSON[0], last_name=PERSON[1])})

        await contacts_of(self.application).revise(contact_id, revised, ORIGIN)

    async def store_poison(self, contact_id: UUID) -> None:
        """An event document that is none: it is parked, and the contact's later events behind it."""
        await self.database.get_container_client("contacts").create_item(
            {
                "id": str(uuid4()), "partitionKey": str(contact_id), "type": "domainEvent",
                "aggregateType": "contact", "data": {"email": PERSON[2]}, "ttl": 600,
            }
        )  # fmt: skip

    async def set_aside(self, contact_id: UUID) -> None:
        """A message that names the person and the contact, and that nobody can read."""
        body = json.dumps({"contactId": str(contact_id), "name": PERSON[1]}).encode()
        await self.application.subscriber.receiver.receive(
            Delivery(SUBSCRIPTION, f"m-{contact_id}", 1, body, {})
        )

    async def dead_letter(self, contact_id: UUID) -> None:
        async with ServiceBusClient.from_connection_string(self.environment["SERVICEBUS"]) as client:
            async with client.get_topic_sender(self.topic.name) as sender:
                body = json.dumps({"contactId": str(contact_id), "email": PERSON[2]})
                await sender.send_messages(
                    ServiceBusMessage(body, session_id=str(contact_id), message_id="dead")
                )
            async with client.get_subscription_receiver(
                self.topic.name, SUBSCRIPTION, session_id=str(contact_id), max_wait_time=10
            ) as receiver:
                [message] = await receiver.receive_messages(1)
                await receiver.dead_letter_message(message, reason="no use")

    async def receive(self, contact_id: UUID) -> None:
        """The subscriber handles the contact's stored events, as if their messages came now."""
        items, _ = await self.application.outbox.container("contacts").page(
            "SELECT * FROM c WHERE c.type = 'domainEvent'",
            {}, 100, None, partition_key=str(contact_id),
        )  # fmt: skip
        for number, item in enumerate(sorted(items, key=lambda item: item["data"].get("sequence", 0))):
            if "action" in item["data"]:
                await self.late(item["data"], number)

    async def late(self, data: dict[str, Any], number: int) -> None:
        body = json.dumps(data).encode()
        await self.application.subscriber.receiver.receive(
            Delivery(SUBSCRIPTION, f"late-{uuid4()}", number, body, {})
        )

    async def erase(self, contact_id: UUID, *arguments: str) -> int:
        return await asyncio.to_thread(
            erase.main,
            ["contact", str(contact_id), *arguments, "--service", "infra.bootstrap"],
            self.environment,
        )


@pytest.fixture
async def world(cosmos_server: Service, servicebus_server: Service) -> AsyncIterator[World]:
    async with deployed(cosmos_server, servicebus_server) as made:
        yield World(**vars(made))


async def all_parked(world: World, contact_id: UUID, count: int) -> bool:
    parked = await world.application.outbox.parking.page(100, None)
    return [each.aggregate and each.aggregate.id for each in parked.items].count(str(contact_id)) == count


async def full_of_traces(world: World) -> UUID:
    """A contact that left something in every container."""
    contact_id = await world.create()
    await eventually(lambda: forwarded(world))
    await world.store_poison(contact_id)
    await eventually(lambda: all_parked(world, contact_id, 1))
    await world.rename(contact_id)
    await eventually(lambda: all_parked(world, contact_id, 2))
    await world.receive(contact_id)
    await world.set_aside(contact_id)
    return contact_id


async def forwarded(world: World) -> bool:
    status = await world.application.outbox.observer.status()
    return bool(status.leases) and not any(lease.lag for lease in status.leases)


@pytest.mark.long  # tests/contract/test_erasing_everywhere.py looks into each container
async def test_no_container_names_the_person_and_subscribers_miss_no_event(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    other = (await contacts_of(world.application).create(OTHER, ORIGIN)).aggregate.id
    async with relaying(world.environment):
        contact_id = await full_of_traces(world)
        await world.dead_letter(contact_id)
        assert len(await world.traces()) >= len(PERSON)

        assert await world.erase(contact_id) == 0
        said = capsys.readouterr().out
        assert await world.traces() == []
        assert not [word for word in PERSON if word in said]
        assert "erase: deleted, with its event" in said
        assert "1 dead letter(s) collected, 2 record(s) of messages set aside emptied" in said
        assert "1 discarded event(s) emptied" in said

        # Subscribers got every sequence, and a notice for the event that nobody could send.
        got = await world.topic.receive(str(contact_id), 5)
        bodies = [json.loads(b"".join(message.body)) for message in got if message.message_id != "dead"]
        assert [(each["action"], each.get("sequence")) for each in bodies] == [
            ("ContactCreatedEvent", 1),
            ("EventDiscarded", None),
            ("ContactNameUpdatedEvent", 2),
            ("ContactDeletedEvent", 3),
        ]

        # Nothing that comes late brings the person back.
        for number, data in enumerate(bodies):
            await world.late(data, 100 + number)
        assert await asyncio.to_thread(rebuild_directory.main, [], world.environment) == 0
        assert await asyncio.to_thread(rebuild_directory.main, ["--source-wins"], world.environment) == 0
        await published_again(world, contact_id)
        assert world.request is not None
        with pytest.raises(AnswerErased):
            await contacts_of(world.application).create_once(DETAILS, ORIGIN, world.request)
        assert await world.traces() == []

        # A second time there is nothing left to do, and the other contact is as it was.
        assert await world.erase(contact_id) == 0
        assert "0 document(s) of events, requests and the contact emptied" in capsys.readouterr().out
    stored = await contacts_of(world.application).read(other, ORIGIN)
    assert stored.aggregate.details == OTHER


async def published_again(world: World, contact_id: UUID) -> None:
    """Only the event of the deletion is still stored, and it names nobody."""
    over = int(utc_now().timestamp()) - publish_again.CLOCKS_DIFFER_SECONDS
    plan = publish_again.RepublishingPlan(Span(0, over, AggregateKey("contact", str(contact_id))), uuid4())
    progress = RepublishingProgress()
    await eventually(lambda: forwarded(world))
    await publish_again.republish(world.application.outbox, plan, progress)
    assert progress.published <= 1


async def delivered(world: World, contact_id: UUID) -> list[dict[str, Any]]:
    """The contact's events as the feed delivers them, and as the host writes their texts anew."""
    feed = world.database.get_container_client("contacts").query_items_change_feed(
        partition_key=str(contact_id), start_time="Beginning"
    )
    found = [dict(item) async for item in feed if item["type"] == "domainEvent"]
    for item in found:
        if "createdAt" in item["data"]:
            item["data"] = item["data"] | {"createdAt": item["data"]["createdAt"].replace("Z", "+00:00")}
    return found


@pytest.mark.parametrize("poison", [True, False])
async def test_a_relay_that_holds_a_page_of_the_person_parks_nothing_of_it_when_it_wakes(
    world: World, *, poison: bool
) -> None:
    """Its originals are gone, so none can be verified; the poison among them is discarded, and all else was sent."""
    async with relaying(world.environment):
        contact_id = await world.create()
        await eventually(lambda: forwarded(world))
        if poison:
            await world.store_poison(contact_id)
        await world.rename(contact_id)
        page = await delivered(world, contact_id)
        assert await world.erase(contact_id) == 0
        assert await world.traces() == []
        done = await world.application.outbox.relay.forward(EVENTS.events(page))
        assert (done.sent, done.parked, done.dropped) == (0, 0, 2 + poison)
        assert await world.traces() == []
        assert await all_parked(world, contact_id, 0)


@dataclass
class Asleep:
    """A parking lot whose relay is paused between its decision to park and the parking."""

    lot: ParkingLot
    meanwhile: Callable[[], Awaitable[None]]
    parkings: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lot, name)

    async def park(self, marker: Marker, events: Sequence[FeedEvent]) -> Collection[str]:
        self.parkings += 1
        if self.parkings == 1:
            await self.meanwhile()
        return await self.lot.park(marker, events)


async def test_a_relay_that_was_about_to_park_an_event_of_the_person_does_not_park_it_when_it_wakes(
    world: World,
) -> None:
    """It found the event too large, and nothing parked. Another relay has sent the event."""
    async with relaying(world.environment):
        contact_id = await world.create()
        page = EVENTS.events(await delivered(world, contact_id))

        async def erase() -> None:
            assert await world.erase(contact_id) == 0

        relay = world.application.outbox.relay
        asleep = Asleep(relay.parking, erase)
        paused = replace(relay, parking=cast(ParkingLot, asleep), publisher=BusPublisher(limit=10))
        done = await paused.forward(page)
        assert (asleep.parkings, done.parked, done.dropped) == (1, 0, 1)
        assert await world.traces() == []


async def test_a_life_that_begins_after_the_erasing_under_the_same_id_is_forwarded_and_parked_as_any(
    world: World,
) -> None:
    async with relaying(world.environment):
        contact_id = await world.create()
        assert await world.erase(contact_id) == 0
    await world.store_poison(contact_id)
    [_, new] = EVENTS.events(await delivered(world, contact_id))
    assert (await world.application.outbox.relay.forward([new])).parked == 1


async def test_nothing_is_erased_before_the_relay_has_forwarded_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    contact_id = await world.create()
    assert await world.erase(contact_id, "--wait", "0") == 1
    assert "Nothing is erased" in capsys.readouterr().err
    assert len(await world.traces()) >= len(PERSON) - 1
    async with relaying(world.environment):
        assert await world.erase(contact_id) == 0
    assert await world.traces() == []
    [created, deleted] = await world.topic.receive(str(contact_id), 2)
    assert (created.subject, deleted.subject) == ("ContactCreatedEvent", "ContactDeletedEvent")


@pytest.mark.long
async def test_an_erasing_that_dies_after_any_step_is_ended_by_the_next(world: World) -> None:
    async with relaying(world.environment):
        for steps in range(1, 7):
            contact_id = await full_of_traces(world)
            key = AggregateKey("contact", str(contact_id))
            begun = world.eraser.erase(key, patience_seconds=30)
            for _ in range(steps):
                await anext(begun)
            await begun.aclose()
            async for _ in world.eraser.erase(key, patience_seconds=30):
                pass
            assert await world.traces() == [], f"after {steps} step(s)"
            entry = await world.application.read_model.inbox.entries.newest(key)
            assert entry is None or entry.entry.deleted


@pytest.mark.long
@pytest.mark.parametrize("which", WHICH_WRITES)
@pytest.mark.parametrize("loss", [Loss.NOT_WRITTEN, Loss.NO_ANSWER, Loss.REPEATED, Loss.DIED_AFTER])
async def test_an_erasing_that_loses_any_write_is_ended_by_the_next(
    world: World, loss: Loss, which: Callable[[int], Sequence[int]]
) -> None:
    async def writes_with(write: int) -> int:
        """How many writes the erasing made, this one lost (0: none)."""
        contact_id = await world.create()
        await world.rename(contact_id)
        await world.receive(contact_id)
        key = AggregateKey("contact", str(contact_id))
        fate = Fate(loss, write)
        async with CosmosClient.from_connection_string(world.environment["COSMOS"]) as client:
            failing = failing_eraser(world, client, fate)
            try:
                async for _ in failing.erase(key, patience_seconds=30):
                    pass
            except (*ERASING_ERRORS, ProcessDied):
                async for _ in world.eraser.erase(key, patience_seconds=30):
                    pass
        assert fate.struck
        assert await world.traces() == [], f"{loss}, write {write}"
        return fate.writes

    async with relaying(world.environment):
        writes = await writes_with(0)
        assert writes > 7
        for write in which(writes):
            await writes_with(write)


def failing_eraser(world: World, client: CosmosClient, fate: Fate) -> Eraser:
    eraser = world.eraser
    assert isinstance(eraser.set_aside, AllSetAside)

    def failing(name: str) -> Container:
        container = Failing(client, world.database.id, name)
        container.fate = fate
        return container

    return replace(
        eraser,
        partition=replace(eraser.partition, container=failing("contacts")),
        parked=failing("parked-events"),
        set_aside=AllSetAside(
            [replace(each, container=failing("set-aside")) for each in eraser.set_aside.each]
        ),
    )


async def test_documents_of_other_kinds_are_named_and_left(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    contact_id = await world.create()
    note = {"id": "note-1", "partitionKey": str(contact_id), "type": "note", "data": {"text": "unknown"}}
    await world.database.get_container_client("contacts").create_item(note)
    async with relaying(world.environment):
        assert await world.erase(contact_id) == 1
    assert "documents of other kinds" in (said := capsys.readouterr().err)
    assert "(note)" in said
    assert await world.traces() == []


async def test_a_parked_document_that_names_another_owner_is_told_and_not_passed_over(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken document of this partition that says it is of another aggregate: no replay of the contact sends it."""
    contact_id = await world.create()
    await world.database.get_container_client("contacts").create_item(
        {
            "id": str(uuid4()), "partitionKey": str(contact_id), "type": "domainEvent", "ttl": 600,
            "aggregateType": "contact", "aggregateId": "another", "data": {"email": PERSON[2]},
        }
    )  # fmt: skip
    async with relaying(world.environment):
        assert await world.erase(contact_id) == 1
    assert set(await world.traces()) == {f"{word} in parkedEvent" for word in (PERSON[0], PERSON[2])}
    [parked] = (await world.application.outbox.parking.page(10, None)).items
    assert parked.id in (said := capsys.readouterr().err)
    assert "discard" in said
    await world.application.outbox.parking.discard(parked.id, "erased")
    async with relaying(world.environment):
        assert await world.erase(contact_id) == 0
    assert await world.traces() == []


async def test_dead_letters_are_collected_until_none_is_left(world: World) -> None:
    """One collecting ends after some seconds, whatever is left."""
    found = [Collected(50, emptied=False), Collected(7, emptied=True)]

    async def collected() -> Collected:
        return found.pop(0)

    contact_id = await world.create()
    async with relaying(world.environment):
        eraser = replace(world.eraser, collect=collected)
        steps = [
            step async for step in eraser.erase(AggregateKey("contact", str(contact_id)), patience_seconds=30)
        ]
    assert any("57 dead letter(s) collected" in step for step in steps)
    assert found == []


async def test_dead_letters_that_cannot_be_looked_at_are_told_and_not_taken_for_none(world: World) -> None:
    """A connection that is slow to open says nothing of the queue. All else is erased meanwhile."""

    async def collected() -> Collected:
        return Collected(0, emptied=False)

    contact_id = await world.create()
    async with relaying(world.environment):
        eraser = replace(world.eraser, collect=collected)
        steps = eraser.erase(AggregateKey("contact", str(contact_id)), patience_seconds=30)
        told = [await anext(steps) for _ in range(7)]
        with pytest.raises(NotErased, match="dead letters"):
            await anext(steps)
    assert told[3].startswith("0 dead letter(s) collected, and how many are left is not known")
    assert await world.traces() == []


async def test_an_id_that_nobody_has_is_no_error(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await world.erase(uuid4()) == 0
    assert "deleted before, or not there" in capsys.readouterr().out


async def test_a_store_that_is_away_ends_in_one_line(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(self: Container, *_: Any) -> None:
        raise StoreFailed(_failure())

    contact_id = await world.create()
    monkeypatch.setattr(Container, "fence", away)
    assert await world.erase(contact_id) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("erase: the store could not be used")


def _failure() -> Any:
    from cosmos_outbox.cosmos.store.errors import Failure, Kind  # noqa: PLC0415

    return Failure(Kind.PASSING, "lost")
