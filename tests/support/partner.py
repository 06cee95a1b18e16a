"""A second relay sends events to a partner's receiver, which is away, refuses or takes as a test has it."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.names import Names
from devstack.testing import Service as Server
from examples.fastapi.person import Details, Person
from tests.support.azure import Topic
from tests.support.paths import ROOT
from tests.support.receiver import OK, SECRET, Answer, Got, receiving, says

ORIGIN = Origin("test")
_REFUSALS = (422, 400, 413, 431)
"""Each speaks of the event, and of nothing else."""


@dataclass
class World:
    """A service whose events one relay sends to a topic, and another to a partner."""

    settings: dict[str, str]
    partner: dict[str, str]
    """The settings of the second relay, as the page on transports has them."""
    topic: Topic
    port: int
    stack: AsyncExitStack
    taken: list[tuple[str, int]] = field(default_factory=list)
    """What the partner has taken, by aggregate and sequence."""
    refused: set[tuple[str, int]] = field(default_factory=set)
    """What it never takes, likewise: the first person's with 422, the next one's with 400, and so on."""
    _refused_people: dict[str, int] = field(default_factory=dict)

    async def comes(self) -> None:
        """From now on the partner is there."""
        await self.stack.enter_async_context(receiving(self.answer, self.port))

    def answer(self, got: Got) -> Answer:
        event = json.loads(got.body)
        if (event["subject"], int(event["sequence"])) in self.refused:
            # Where several are refused with one status and none is taken, the relay waits for ten minutes.
            of_its_own = self._refused_people.setdefault(event["subject"], len(self._refused_people))
            return says(_REFUSALS[of_its_own], body=b"no such person")
        self.taken.append((event["subject"], int(event["sequence"])))
        return OK

    async def on_topic(self, person: str, count: int) -> list[int]:
        """The sequences of so many of the person's events that came to the topic."""
        messages = await self.topic.receive(person, count, of="person")
        return [int((each.application_properties or {})[b"sequence"]) for each in messages]

    def taken_of(self, person: str) -> list[int]:
        return [sequence for owner, sequence in self.taken if owner == person]


def declared() -> Service:
    """The service, as each process declares it."""
    return Service("people", [Person], Names(container="people"))


service = declared()
"""For a command, which finds it here."""


def _of_the_page() -> dict[str, str]:
    page = (ROOT / "docs" / "use" / "transports.md").read_text()
    block = page.partition("## A second destination")[2].partition("```sh\n")[2].partition("```")[0]
    lines = [line.partition("#")[0].strip().partition("=") for line in block.splitlines()]
    return {name: value for name, _, value in lines}


@asynccontextmanager
async def world_of(cosmos_server: Server, servicebus_server: Server) -> AsyncIterator[World]:
    topic, partner = Topic(servicebus_server), _of_the_page()
    await topic.create()
    async with CosmosClient.from_connection_string(cosmos_server.connection_string) as client:
        database = await client.create_database(topic.name)
        for name in ("people", "people-parked", "people-claims", partner["COSMOS_PARKED_CONTAINER"]):
            await database.create_container(name, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container("people-leases", PartitionKey("/id"), default_ttl=-1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "COSMOS": cosmos_server.connection_string,
        "COSMOS_DATABASE": topic.name,
        "SERVICEBUS": servicebus_server.connection_string,
        "SERVICEBUS_TOPIC": topic.name,
        "RELAY_POLL_DELAY_MS": "50",
        "RELAY_SEND_SECONDS": "5",
    }
    receiver = {"WEBHOOK_URL": f"http://127.0.0.1:{port}/events", "WEBHOOK_SECRETS": SECRET}
    async with AsyncExitStack() as stack:
        yield World(settings, settings | partner | receiver, topic, port, stack)
    await topic.delete()


async def added(wired: Wired, *names: str) -> str:
    """A person who is called one after another by these names."""
    person = Person.add(Details(name="Nobody", email="ada@contoso.com"), at=utc_now())
    name = (await wired.aggregates.create(person, ORIGIN)).aggregate.aggregate_id
    for each in names:
        await renamed(wired, name, each)
    return name


async def renamed(wired: Wired, person: str, name: str) -> None:
    def rename(each: Person) -> None:
        each.change(Details(name=name, email="ada@contoso.com"), at=utc_now())

    await wired.aggregates.change(Person, person, rename, ORIGIN)
