"""The whole path in processes of its own: HTTP in, the app in the Functions host, messages out."""

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack import testing
from devstack.testing.eventually import WITHIN_SECONDS
from devstack.testing.stack import run_beside
from tests.support.azure import Topic
from tests.support.contacts import DETAILS_JSON
from tests.support.emulators import Elsewhere, elsewhere, modest_app
from tests.support.paths import ROOT

SUBSCRIBER = "contact-directory"


class Stack(testing.Stack):
    """devstack's, with the app and what a deployment makes for it; ``topic`` has an observer beside the subscriber."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, settings, cosmos=elsewhere("cosmos"), servicebus=elsewhere("servicebus"))
        self.database = settings["COSMOS_DATABASE"]
        partitioned = settings.get("SERVICEBUS_TOPIC_PARTITIONED") == "true"
        self.topic = Topic(self.servicebus, settings["SERVICEBUS_TOPIC"], partitioned=partitioned)

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

    async def sequences(self, contact_id: str, count: int, *, within: float = WITHIN_SECONDS) -> list[int]:
        """The sequences of the next ``count`` messages of a contact, as the observer gets them."""
        messages = await self.topic.receive(contact_id, count, within=within)
        return [int(message.application_properties[b"sequence"]) for message in messages]  # type: ignore[index]  # every message has some


@contextmanager
def stack(folder: Path, *, app: Path = ROOT, **settings: str) -> Iterator[Stack]:
    """Start all three, with ``settings`` on top of those that connect them."""
    unique = uuid.uuid4().hex[:12]
    names = {
        "COSMOS_DATABASE": f"db-{unique}",
        "SERVICEBUS_TOPIC": f"topic-{unique}",
        "SERVICEBUS_SUBSCRIPTION": SUBSCRIBER,
        "PYTHONPATH": str(ROOT),
        "RELAY_SEND_SECONDS": "5",
        # A timer that comes at some second of a test would do what the test's operator is about to do.
        "AzureWebJobs.tend_parked.Disabled": "true",
    }
    with Stack(folder, names | settings) as started:
        # First, with what an emulator takes: what the app declares is then there already.
        run_beside(started.topic.create(SUBSCRIBER))
        started.make(ROOT)
        is_elsewhere = isinstance(started.servicebus, Elsewhere)
        started.run(modest_app(app, folder / "app") if is_elsewhere else app)
        try:
            yield started
        finally:
            if is_elsewhere:
                run_beside(started.topic.delete())


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
