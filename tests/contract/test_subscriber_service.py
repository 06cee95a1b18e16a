"""Another team's service, over each store that it can have: what it keeps, what it does, and what its operator does."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.servicebus import ServiceBusMessage
from pydantic import ValidationError

from cosmos_outbox.cli.main import PARTS
from cosmos_outbox.composition.declarations import ReadModelDeclaration, StoreOf
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.inbox.effect import OLD
from cosmos_outbox.inbox.entry import After, EntrySchema
from cosmos_outbox.inbox.message import Event, TolerantReader
from cosmos_outbox.inbox.ports import NoSource
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.kernel.clock import SYSTEM, using, utc_now
from cosmos_outbox.preflight.plan import needed_by_subscriber
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named, Names
from cosmos_outbox.sources.http import HttpApi
from cosmos_outbox.worker import subscriber as worker
from cosmos_outbox.worker.running import running
from devstack.testing import Service as Server
from devstack.testing import eventually
from examples.subscriber.sqlite_store import SqliteFile
from tests.support.azure import Topic, indexed
from tests.support.emulators import Gap

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.needs_a_socket("the publisher's HTTP API, and what takes turns with it"),
]
"""The SDK leaves the socket open of an opening that is cancelled, as a stop does."""

PLACE = "tests.contract.a_subscriber"
"""Where the command line finds the service of the running test."""


class Guest(TolerantReader):
    """What this team knows of a guest."""

    name: str


FORM = EntrySchema(Guest, search={"name": lambda guest: guest.name}, sorted_by=["name"])


def guest(body: Mapping[str, Any]) -> Guest:
    return Guest.model_validate(body)


def first(event: Event) -> Guest | None:
    try:
        return guest(event.data)
    except ValidationError:
        return None


def project(state: Guest, event: Event) -> After[Guest]:
    if event.action == "GuestLeft":
        return After(None)
    return After(guest(event.data))


@dataclass
class Publisher:
    """The publisher's API: what it answers of each guest."""

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""

    async def get(self, request: web.Request) -> web.Response:
        guest_id = request.match_info["id"]
        self.asked.append(guest_id)
        if guest_id not in self.answers:
            problem = {"type": "/api/problems/not-found", "status": 404}
            return web.json_response(problem, status=404, content_type="application/problem+json")
        status, body = self.answers[guest_id]
        return web.json_response(body, status=status)


@dataclass
class World:
    """A subscriber of a topic of its own; its letters are what its effect asked for."""

    service: Service
    guests: ReadModelDeclaration[Guest]
    settings: dict[str, str]
    topic: Topic
    publisher: Publisher
    letters: list[tuple[str, int | None]] = field(default_factory=list)
    raises: list[Exception] = field(default_factory=list)
    """What the post answers, in turn."""

    async def letter(self, event: Event) -> None:
        if self.raises:
            raise self.raises.pop(0)
        self.letters.append((event.aggregate.id, event.sequence))

    async def send(self, guest_id: str, sequence: int, *, action: str = "GuestNamed", **data: Any) -> None:
        body = {
            "id": f"{guest_id}-{sequence}", "action": action, "sequence": sequence, "guestId": guest_id,
            "createdAt": utc_now().isoformat(), **data,
        }  # fmt: skip
        message = ServiceBusMessage(
            json.dumps(body), message_id=str(uuid4()), session_id=guest_id, content_type="application/json",
            application_properties={"aggregateType": "guest"},
        )  # fmt: skip
        async with (
            servicebus_client(Connection(self.topic.service.connection_string), None) as client,
            client.get_topic_sender(self.topic.name) as sender,
        ):
            await sender.send_messages(message)

    def at_work(self) -> Any:
        return running(self.service, environment=self.settings, slots=2)

    async def listed(self, wired: Wired) -> list[tuple[str, str, int]]:
        page = await wired.read_model(self.guests).listing.page([], "name", 50, None)
        return [(each.id, each.state.name, each.sequence) for each in page.items]

    async def command(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
        """The command as its operator gives it: exit code, output, errors."""
        capsys.readouterr()
        part, argv = PARTS[arguments[0]].main(), [*arguments[1:], "--service", PLACE]
        code = await asyncio.to_thread(part, argv, self.settings)
        said = capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture(params=["sqlite", pytest.param("cosmos", marks=pytest.mark.long)])
async def world(
    request: pytest.FixtureRequest,
    cosmos_server: Server,
    servicebus_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[World]:
    topic, publisher = Topic(servicebus_server), Publisher()
    await topic.create("guests", "letters")
    settings = {
        "SERVICEBUS": servicebus_server.connection_string,
        "SERVICEBUS_TOPIC": topic.name,
        "SERVICEBUS_ADMIN_PORT": servicebus_server.addresses[1].rpartition(":")[2],
    }
    store: StoreOf = CosmosDatabase(set_aside="hotel-set-aside")
    if request.param == "sqlite":
        store = SqliteFile(Named("HOTEL_DATABASE"))
        settings["HOTEL_DATABASE"] = str(tmp_path / "hotel.db")
    else:
        settings |= {"COSMOS": cosmos_server.connection_string, "COSMOS_DATABASE": topic.name}
    made = await _served(publisher)
    settings["GUESTS_API"] = publisher.address
    service = Service("hotel", publishes=False, store=store)
    guests = service.read_model(
        "guests", of="guest", form=FORM, project=project, state_of=guest, source=HttpApi(Named("GUESTS_API"))
    )
    world = World(service, guests, settings, topic, publisher)
    service.effect("letters", of="guest", repeatable=False)(world.letter)
    if isinstance(store, CosmosDatabase):
        await _deployed(store, service, cosmos_server, settings)
    place = ModuleType(PLACE)
    place.service = service  # type: ignore[attr-defined]  # as a module of the team's has it
    monkeypatch.setitem(sys.modules, PLACE, place)
    monkeypatch.setattr(worker, "WATCH_SECONDS", 0.2)
    yield world
    await made.cleanup()
    await topic.delete()


async def _served(publisher: Publisher) -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/guests/{id}", publisher.get)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    publisher.address = f"http://127.0.0.1:{runner.addresses[0][1]}/guests"
    return runner


async def _deployed(
    store: CosmosDatabase, service: Service, server: Server, settings: Mapping[str, str]
) -> None:
    """The containers that preflight asks for, and no others."""
    async with CosmosClient.from_connection_string(server.connection_string) as client:
        database = await client.create_database(settings["COSMOS_DATABASE"])
        for need in needed_by_subscriber(store.names(settings), service):
            await database.create_container(
                need.name,
                PartitionKey(need.partition_key),
                default_ttl=-1,
                indexing_policy=indexed(*need.queried, composite=need.composite),
            )


async def test_a_read_model_and_an_effect_are_kept_in_a_store_of_its_own(world: World) -> None:
    async with world.at_work() as at_work:
        wired = at_work.wired
        await world.send("g1", 1, name="Ada")
        await world.send("g1", 2, name="Ada King")
        world.publisher.answers["g1"] = (200, {"name": "Ada King", "sequence": 2})
        await eventually(lambda: _is(world, wired, [("g1", "Ada King", 2)]))
        await eventually(lambda: world.letters == [("g1", 1), ("g1", 2)])
        world.publisher.answers["g1"] = (410, None)
        await world.send("g1", 3, action="GuestLeft")
        await eventually(lambda: _is(world, wired, []))
        await eventually(lambda: len(world.letters) == 3)
        assert await at_work.health.trouble() is None
    async with world.at_work() as at_work:  # another process: all is still known
        await world.send("g1", 2, name="Ada King")
        await world.send("g2", 1, name="Bea")
        world.publisher.answers["g2"] = (200, {"name": "Bea", "sequence": 1})
        await eventually(lambda: _is(world, at_work.wired, [("g2", "Bea", 1)]))
        await eventually(lambda: world.letters[3:] == [("g2", 1)])


async def _is(world: World, wired: Wired, wanted: Sequence[tuple[str, str, int]]) -> bool:
    return await world.listed(wired) == wanted


async def test_an_operator_sees_and_settles_what_is_open(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.publisher.answers["g1"] = (200, {"name": "Ada", "sequence": 1})
    world.publisher.answers["g2"] = (400, None)  # a bug of the publisher's, of this guest alone
    world.raises = [RuntimeError("the line went dead")]
    async with world.at_work() as at_work:
        await world.send("g1", 1, name="Ada")
        await world.send("g2", 1, name="Secret")
        await eventually(lambda: _is(world, at_work.wired, [("g1", "Ada", 1)]))
        retrier = at_work.wired.subscriptions["guests"].subscriber.retrier
        await eventually(lambda: _waits(retrier, 1))
        await eventually(lambda: len(world.letters) == 1)
    uncertain = {"g1": "g2", "g2": "g1"}[world.letters[0][0]]
    code, out, _ = await world.command(capsys, "status")
    assert code == 1
    assert "guests has set messages aside (1 waiting): cosmos-outbox stuck lists them" in out
    assert "letters has set messages aside (1 refused): cosmos-outbox stuck lists them" in out
    assert "relay" not in out
    code, out, _ = await world.command(capsys, "stuck", "--json")
    [record, letter] = json.loads(out)["items"]
    assert (code, record["kind"], record["subscriber"], record["aggregateId"]) == (
        1,
        "message",
        "guests",
        "g2",
    )
    assert (letter["kind"], letter["subscriber"], letter["aggregateId"], letter["state"]) == (
        "effect", "letters", uncertain, "refused"
    )  # fmt: skip
    code, out, err = await world.command(capsys, "retry", record["id"])
    assert (code, out) == (1, "")
    assert "cannot be applied" in err
    world.publisher.answers["g2"] = (200, {"name": "Bea", "sequence": 1})
    assert await world.command(capsys, "retry", record["id"]) == (0, "1 sent or applied\n", "")
    assert letter["reason"].startswith("it may have been done: RuntimeError")
    code, _, err = await world.command(capsys, "retry", letter["id"])
    assert (code, "cannot be applied" in err) == (1, True), "its first call may be running it"
    with using(replace(SYSTEM, now=lambda: SYSTEM.now() + OLD)):
        code, out, err = await world.command(capsys, "retry", letter["id"])
    assert (code, out, err) == (0, "1 sent or applied\n", "")
    assert sorted(world.letters) == [("g1", 1), ("g2", 1)]
    code, out, _ = await world.command(capsys, "status")
    assert (code, out.splitlines()[0]) == (0, "hotel: all is well")


async def _waits(retrier: Any, count: int) -> bool:
    return bool((await retrier.counts())[RecordState.WAITING] == count)


async def test_an_entry_is_rebuilt_from_the_publishers_api(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.publisher.answers = {
        "g1": (200, {"name": "Ada", "sequence": 1}),
        "g2": (200, {"name": "Bea", "sequence": 4}),
    }
    async with world.at_work() as at_work:
        await world.send("g1", 1, name="Ada")
        await eventually(lambda: _is(world, at_work.wired, [("g1", "Ada", 1)]))
    world.publisher.answers["g1"] = (200, {"name": "Ada King", "sequence": 2})
    code, out, _ = await world.command(capsys, "rebuild")
    assert (code, "1 entries compared, 1 written, 0 failed" in out) == (0, True), out
    assert (await world.command(capsys, "rebuild", "guests", "--id", "g2"))[:2] == (
        0,
        "1 are as their sources\n",
    )
    wired = world.service.wire(world.settings)
    async with wired.resources:
        assert await world.listed(wired) == [("g1", "Ada King", 2), ("g2", "Bea", 4)]
    code, _, err = await world.command(capsys, "rebuild", "--id", "g3")
    assert (code, "does not find" in err) == (1, True), "404 may be an old answer"


async def test_without_a_source_there_is_nothing_to_rebuild_from(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = Service("blind", publishes=False, store=world.service.store)
    blind.read_model("guests", of="guest", form=FORM, project=project, first=first, source=NoSource())
    monkeypatch.setattr(sys.modules[PLACE], "service", blind)
    code, _, err = await world.command(capsys, "rebuild")
    assert (code, err) == (
        2,
        "rebuild: guests has no source: ask the team that publishes to publish the events of that time again\n",
    )


async def test_what_only_a_publisher_can_do_is_said_in_one_line(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = await world.command(capsys, "events", "guest", "g1")
    assert (code, out) == (2, "")
    assert "hotel only subscribes" in err
    assert err.count("\n") == 1


@pytest.mark.known_gap(Gap.INDEX_POLICY)
async def test_preflight_checks_the_services_own_subscriptions_and_containers(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = await world.command(capsys, "preflight", "--survive", "30m", "--as-app")
    of_store = [line for line in out.splitlines() if "container" in line]
    wanted = {"guests", "letters", "hotel-set-aside"} if "COSMOS" in world.settings else set()
    assert {line.split("container ")[1].split(":")[0] for line in of_store} == wanted
    assert not [line for line in of_store if not line.startswith("ok")]
    subjects = [line for line in out.splitlines() if line.startswith("ok") and "subscription " in line]
    assert any("subscription guests: may be used as the role" in line for line in subjects)
    assert not [line for line in out.splitlines() if "may be used" in line and "topic" in line], (
        "it sends nothing"
    )
    assert code in (0, 1), out
    gone = await _without_subscription(world, capsys)
    assert "wrong    subscription guests: does not exist in the topic" in gone


async def _without_subscription(world: World, capsys: pytest.CaptureFixture[str]) -> str:
    world.settings["GUESTS_SUBSCRIPTION"] = "nobody"
    code, out, _ = await world.command(capsys, "preflight", "--survive", "30m")
    assert code == 1
    return out.replace("nobody", "guests")


def test_a_database_that_nobody_names_is_reported_by_its_setting() -> None:
    connection = "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5"
    settings = {"COSMOS": connection, "SERVICEBUS": "Endpoint=sb://b"}
    service = Service("hotel", publishes=False, store=CosmosDatabase(), names=Names(topic="t"))
    with pytest.raises(Misconfigured, match="COSMOS_DATABASE is not set"):
        service.wire(settings)
    with pytest.raises(Misconfigured, match="COSMOS_SET_ASIDE_CONTAINER is not set"):
        service.wire(settings | {"COSMOS_DATABASE": "hotel"})
    with pytest.raises(Misconfigured, match="neither COSMOS nor COSMOS__accountEndpoint is set"):
        service.wire({"SERVICEBUS": "Endpoint=sb://b"})


@pytest.mark.parametrize("name", ["GUESTS_CONTAINER", "OTHER_GUESTS_CONTAINER", "LETTERS_CONTAINER"])
async def test_what_would_mix_in_one_container_is_refused(name: str) -> None:
    service = Service("hotel", publishes=False, store=CosmosDatabase("hotel", "kept"), names=Names(topic="t"))
    for model in ("guests", "other-guests"):
        service.read_model(model, of="guest", form=FORM, project=project, first=first, source=NoSource())
    for effect in ("letters", "calls"):
        service.effect(effect, of="guest")(_nothing)
    settings = {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5", "SERVICEBUS": "Endpoint=sb://b",
        "LETTERS_CONTAINER": "post", "CALLS_CONTAINER": "post",
    }  # fmt: skip
    wired = service.wire(settings)
    async with wired.resources:
        assert len(wired.subscriptions) == 4
    for taken in {"kept", "guests", "other-guests"} - {
        name.removesuffix("_CONTAINER").lower().replace("_", "-")
    }:
        wired = service.wire(settings | {name: taken})
        async with wired.resources:
            with pytest.raises(Misconfigured, match=f"container {taken} is to hold .* and something else"):
                _ = wired.subscriptions


async def test_the_store_may_be_reached_with_a_managed_identity() -> None:
    service = Service(
        "hotel", publishes=False, store=CosmosDatabase("hotel", "hotel-set-aside"), names=Names(topic="t")
    )
    service.effect("letters", of="guest")(_nothing)
    wired = service.wire(
        {
            "COSMOS__accountEndpoint": "https://hotel.documents.azure.com:443/",
            "COSMOS__credential": "managedidentity",
            "COSMOS__clientId": "11111111-2222-3333-4444-555555555555",
            "SERVICEBUS__fullyQualifiedNamespace": "publisher.servicebus.windows.net",
            "LETTERS_CONTAINER": "post",
        }
    )
    async with wired.resources:
        assert isinstance(service.store, CosmosDatabase)
        names = service.store.names(wired.environment)
        assert (names.container("letters"), names.container("guests")) == ("post", "guests")
        assert wired.subscriptions["letters"].subscriber.receiver.in_order


async def _nothing(event: Event) -> None:
    """An effect that is never asked for."""


def test_two_subscribers_of_one_name_are_refused() -> None:
    service = Service("hotel", publishes=False, store=CosmosDatabase())
    service.effect("letters", of="guest")(_nothing)
    with pytest.raises(ValueError, match="hotel has two subscribers named letters"):
        service.effect("letters", of="guest")(_nothing)


async def test_ids_that_would_be_kept_for_too_long_are_refused(world: World) -> None:
    settings = world.settings | {"EVENT_TTL_SECONDS": "900000000"}
    wired = world.service.wire(settings)
    async with wired.resources:
        with pytest.raises(Misconfigured, match="lower EVENT_TTL_SECONDS"):
            _ = wired.subscriptions
