"""The whole path in processes of its own: HTTP in, the app in the Functions host, messages out."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from devstack.testing import Service, running
from tests.support.azure import CONTACTS, LEASES, PARKED, Topic, cosmos_connection, servicebus_connection
from tests.support.contacts import DETAILS_JSON
from tests.support.emulators import Elsewhere, elsewhere, modest_app
from tests.support.paths import ROOT

SUBSCRIBER = "contact-directory"


@dataclass
class Stack:
    """The three services with what a deployment makes in them; ``topic`` has an observer beside the subscriber."""

    cosmos: Service
    servicebus: Service
    functions: Service
    topic: Topic
    database: str

    @property
    def url(self) -> str:
        return self.functions.address.rstrip("/") + "/api"

    def log(self) -> str:
        return self.functions.log.read_text()

    async def create(self, http: aiohttp.ClientSession, **details: Any) -> dict[str, Any]:
        async with http.post(f"{self.url}/contacts", json=DETAILS_JSON | details) as answer:
            assert answer.status == 201, await answer.text()
            contact: dict[str, Any] = await answer.json()
            return contact

    async def patch(self, http: aiohttp.ClientSession, contact_id: str, **patch: Any) -> dict[str, Any]:
        async with http.patch(f"{self.url}/contacts/{contact_id}", json=patch) as answer:
            assert answer.status == 200, await answer.text()
            contact: dict[str, Any] = await answer.json()
            return contact

    async def sequences(self, contact_id: str, count: int, *, within: float = 15.0) -> list[int]:
        """The sequences of the next ``count`` messages of a contact, as the observer gets them."""
        messages = await self.topic.receive(contact_id, count, within=within)
        return [int(message.application_properties[b"sequence"]) for message in messages]  # type: ignore[index]  # every message has some


@contextmanager
def stack(folder: Path, *, app: Path = ROOT, **settings: str) -> Iterator[Stack]:
    """Start all three, with ``settings`` on top of those that connect them."""
    with ExitStack() as running_services:

        def start(name: str, *arguments: str, environment: dict[str, str] | None = None) -> Service:
            own = Service(name, folder / name, *arguments, environment=environment)
            return running_services.enter_context(running(elsewhere(name) or own))

        cosmos = start("cosmos", "--faults")
        servicebus = start("servicebus", "--faults")
        topic, database = Topic(servicebus), f"db-{uuid.uuid4().hex[:12]}"
        with ThreadPoolExecutor(1) as beside:  # a test's own loop may be running in this thread
            beside.submit(asyncio.run, _deploy(cosmos, database, topic)).result()
        if isinstance(servicebus, Elsewhere):
            app = modest_app(app, folder / "app")
            running_services.callback(lambda: asyncio.run(topic.delete()))
        environment = {
            "COSMOS": cosmos_connection(cosmos),
            "COSMOS_DATABASE": database,
            "SERVICEBUS": servicebus_connection(servicebus),
            "SERVICEBUS_TOPIC": topic.name,
            "SERVICEBUS_SUBSCRIPTION": SUBSCRIBER,
            "PYTHONPATH": str(ROOT),
        } | settings
        sample = str(ROOT / "local.settings.sample.json")
        functions = start("functions", "--app", str(app), "--settings", sample, environment=environment)
        yield Stack(cosmos, servicebus, functions, topic, database)


async def _deploy(cosmos: Service, database_id: str, topic: Topic) -> None:
    async with CosmosClient.from_connection_string(cosmos_connection(cosmos)) as client:
        database = await client.create_database(database_id)
        await database.create_container(CONTACTS, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container(LEASES, PartitionKey("/id"))
        await database.create_container(PARKED, PartitionKey("/partitionKey"), default_ttl=-1)
    await topic.create(SUBSCRIBER)


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """For tests that break nothing."""
    with stack(tmp_path_factory.mktemp("stack")) as started:
        yield started


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session:
        yield session


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """For tests that kill or pause something."""
    with stack(tmp_path) as started:
        yield started
