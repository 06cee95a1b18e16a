"""A service in a program of any kind: its workers begin with the block, outlive a crash, and end with it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.composition.declarations import ReadModelDeclaration
from cosmos_outbox.inbox.read_model import HealReason
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Names
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker import running as running_module
from cosmos_outbox.worker.draining import drain
from cosmos_outbox.worker.running import running
from devstack.testing import Service as Server
from devstack.testing import eventually
from examples.fastapi.directory import FORM, Entry, entry_of, project
from examples.fastapi.person import Details, Person
from tests.support.azure import Topic

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning"),
]
"""The SDK leaves the socket open of an opening that is cancelled, as a stop does."""

ORIGIN = Origin("test")
SELDOM = {"RELAY_POLL_DELAY_MS": "60000"}
"""A poll that no test lives to see."""


class World:
    """A deployment of its own, and a service for it."""

    def __init__(self, settings: dict[str, str], topic: Topic) -> None:
        self.settings = settings
        self.service = Service("people", [Person], Names(container="people"))
        self.directory: ReadModelDeclaration[Entry] = self.service.read_model(
            "directory", of=Person, form=FORM, state_of=entry_of, project=project
        )
        self.topic = topic

    async def entry(self, wired: Wired, person: str) -> tuple[str, int] | None:
        found = await wired.read_model(self.directory).inbox.entries.read(AggregateKey("person", person))
        if found is None or found.entry.state is None:
            return None
        return found.entry.state.name, found.entry.last_sequence


@pytest.fixture
async def world(cosmos_server: Server, servicebus_server: Server) -> AsyncIterator[World]:
    topic = Topic(servicebus_server)
    await topic.create("directory")
    async with CosmosClient.from_connection_string(cosmos_server.connection_string) as client:
        database = await client.create_database(topic.name)
        for name in ("people", "people-parked", "people-claims", "people-set-aside", "directory"):
            await database.create_container(name, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container("people-leases", PartitionKey("/id"), default_ttl=-1)
    settings = {
        "COSMOS": cosmos_server.connection_string,
        "COSMOS_DATABASE": topic.name,
        "SERVICEBUS": servicebus_server.connection_string,
        "SERVICEBUS_TOPIC": topic.name,
    }
    yield World(settings, topic)
    await topic.delete()


async def added(wired: Wired, name: str = "Ada") -> str:
    person = Person.add(Details(name=name, email="ada@contoso.com"), at=utc_now())
    return (await wired.aggregates.create(person, ORIGIN)).aggregate.aggregate_id


async def renamed(wired: Wired, person: str, name: str) -> None:
    def rename(each: Person) -> None:
        each.change(Details(name=name, email="ada@contoso.com"), at=utc_now())

    await wired.aggregates.change(Person, person, rename, ORIGIN)


async def test_a_commit_is_applied_long_before_the_poll(world: World) -> None:
    async with running(world.service, environment=world.settings | SELDOM, slots=2) as at_work:
        assert world.service() is at_work.wired
        person = await added(world.service())
        for number in range(5):
            await renamed(at_work.wired, person, f"Number {number}")
        await eventually(lambda: _is(world, at_work.wired, person, ("Number 4", 6)))
        assert await at_work.health.trouble() is None
        assert at_work.health.alive
        assert "no event waits" in at_work.health.line()


async def _is(world: World, wired: Wired, person: str, wanted: tuple[str, int]) -> bool:
    return await world.entry(wired, person) == wanted


async def test_each_worker_can_be_left_to_another_process(world: World) -> None:
    async with running(world.service, environment=world.settings, subscribers=False) as first:
        person = await added(first.wired)
        assert [part.name for part in first.health.parts] == ["relay"]
        async with running(world.service, environment=world.settings, relay=False, slots=2) as second:
            assert [part.name for part in second.health.parts] == ["subscriber"]
            await eventually(lambda: _is(world, second.wired, person, ("Ada", 1)))


async def test_a_deployment_that_is_wrong_is_reported_before_the_block(world: World) -> None:
    with pytest.raises(Misconfigured, match="does not exist"):
        async with running(
            world.service, environment=world.settings | {"COSMOS_CONTAINER": "no-such-container"}
        ):
            raise AssertionError("the block has begun")
    with pytest.raises(Misconfigured, match="SERVICEBUS"):
        async with running(world.service, environment={**world.settings, "SERVICEBUS": ""}):
            raise AssertionError("the block has begun")


async def test_a_connection_that_cannot_be_right_is_refused_before_the_block(world: World) -> None:
    """The subscribers would begin again and again, and receive nothing."""
    setting, service = "SERVICEBUS", "Service Bus"
    wrong = world.settings | {setting: "no connection string"}
    with pytest.raises(Misconfigured, match=f"{setting}.* cannot be one of {service}"):
        async with running(world.service, environment=wrong, relay=False, slots=1):
            raise AssertionError("the block has begun")


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("a bug"),
        pytest.param(Misconfigured("the topic was deleted"), marks=pytest.mark.long),
    ],
)
async def test_a_worker_that_crashes_is_logged_and_begun_again(
    error: Exception, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running_module, "_FIRST_PAUSE_SECONDS", 0.3)
    relayed, lives, crash = relay_worker.work, 0, asyncio.Event()

    async def crashing(health: relay_worker.RelayHealth) -> None:
        nonlocal lives
        lives += 1
        if lives > 1:
            return await relayed(health)
        health.tried.set()
        await crash.wait()
        raise error

    monkeypatch.setattr(relay_worker, "work", crashing)
    async with running(world.service, environment=world.settings, slots=2) as at_work:
        person = await added(at_work.wired)
        crash.set()
        await eventually(lambda: _troubled(at_work, "the relay has failed"))
        await eventually(lambda: _is(world, at_work.wired, person, ("Ada", 1)))
        await eventually(lambda: _well(at_work))
    [logged] = [
        each for each in caplog.records if each.levelno == logging.ERROR and "is restarted" in each.message
    ]
    assert logged.exc_info


async def _troubled(at_work: Any, reason: str) -> bool:
    return reason in (await at_work.health.trouble() or "")


async def _well(at_work: Any) -> bool:
    return await at_work.health.trouble() is None


async def test_the_end_lets_what_is_in_hand_end_and_gives_back_what_is_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def served() -> str:
        async with running(world.service, environment=world.settings, slots=2) as at_work:
            inbox = at_work.wired.read_model(world.directory).inbox
            entries = inbox.entries
            put = entries.put

            async def slow(*given: Any, **named: Any) -> None:
                begun.set()
                await go_on.wait()
                await put(*given, **named)

            object.__setattr__(entries, "put", slow)
            person = await added(at_work.wired)
            await eventually(begun.is_set)
        return person

    serving = asyncio.create_task(served())
    await eventually(begun.is_set)
    await asyncio.wait({serving}, timeout=0.5)  # in which a block that does not wait has ended
    assert not serving.done()
    go_on.set()
    person = await serving
    wired = world.service.wire(world.settings)
    async with wired.resources:
        assert await world.entry(wired, person) == ("Ada", 1)
        owners = [each["Owner"] async for each in wired.relay.leases.read_all_items() if "Owner" in each]
    assert owners == [None], "the next relay need not wait until the lease expires"


@pytest.mark.parametrize("cancelled", [pytest.param(False, marks=pytest.mark.long), True])
async def test_an_error_or_a_cancellation_of_the_program_ends_the_workers(
    world: World, cancelled: bool
) -> None:
    before, reached = asyncio.all_tasks(), asyncio.Event()

    async def program() -> None:
        async with running(world.service, environment=world.settings, slots=1) as at_work:
            person = await added(at_work.wired)
            # The slot has its session then: the SDK leaves a socket to the garbage collector that is cut off opening.
            await eventually(lambda: _is(world, at_work.wired, person, ("Ada", 1)))
            reached.set()
            if not cancelled:
                raise ValueError("the program's own")
            await asyncio.Event().wait()

    at_work = asyncio.create_task(program())
    await asyncio.wait(
        {at_work, waiting := asyncio.create_task(reached.wait())}, return_when="FIRST_COMPLETED"
    )
    await waiting
    if cancelled:
        at_work.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else ValueError):
        await at_work
    await eventually(lambda: asyncio.all_tasks() <= before)


async def test_a_program_that_runs_a_service_twice_applies_each_event_once(world: World) -> None:
    async with (
        running(world.service, environment=world.settings, slots=2) as one,
        running(world.service, environment=world.settings, slots=2) as two,
    ):
        people = [await added(each.wired) for each in (one, two) for _ in range(3)]
        for person in people:
            await renamed(one.wired, person, "King")
        for person in people:
            await eventually(partial(_is, world, one.wired, person, ("King", 2)))
        counts = [each.wired.read_model(world.directory).inbox.counts for each in (one, two)]
        assert sum(each[HealReason.NEW] + each[None] for each in counts) <= 2 * len(people)


async def test_a_relay_that_is_run_once_ends_when_all_is_forwarded(world: World) -> None:
    wired = world.service.wire(world.settings)
    people = [await added(wired) for _ in range(3)]
    done = await drain(wired, asyncio.Event(), None)
    assert (done.forwarded, done.whole, done.reason) == (len(people), True, "")
    assert str(done).startswith("all is forwarded that was stored at the start; 3 event(s) forwarded")


async def test_a_relay_that_could_not_forward_all_says_why(world: World) -> None:
    wired, stop = world.service.wire(world.settings | {"SERVICEBUS_TOPIC": "missing"}), asyncio.Event()
    await added(wired)
    asyncio.get_running_loop().call_later(2, stop.set)
    done = await drain(wired, stop, None)
    assert (done.forwarded, done.whole) == (0, False)
    assert done.reason.startswith("the relay was asked to stop. ")
    assert "topic missing (SERVICEBUS_TOPIC) does not exist" in done.reason
    assert done.reason.endswith("Run the command again")
