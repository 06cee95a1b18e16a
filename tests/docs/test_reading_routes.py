"""The reading routes name every file that a request, an event and a message pass, in this order: runs are traced.

What is left out is left out by its room: ``composition`` and two modules of the kernel build, telemetry watches,
and all ask the clock.
"""

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any

import azure.functions as func
import pytest
from azure.cosmos.aio import DatabaseProxy

from devstack.testing import Service
from tests.support.azure import Topic, contacts_database, cosmos_connection
from tests.support.contacts import DETAILS_JSON
from tests.support.functions import functions
from tests.support.paths import ROOT

OURS = ("function_app.py", "infra/", "application/", "domain/", "cosmos_outbox/", "cosmos_changefeed/")
LEFT_OUT = re.compile(
    r"cosmos_outbox/((composition|telemetry|testing)/|service\.py$)|/telemetry\.py$|kernel/(clock|dataclass|late)\.py$"
)
SUBSCRIPTION = "directory"


def routes() -> dict[str, list[str]]:
    """The files of each route, in their order."""
    page = (ROOT / "docs" / "internals" / "reading-routes.md").read_text()
    parts = re.findall(r"^## (\w+ \w+).*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return {title: re.findall(r"`([\w/]+\.py)`", text) for title, text in parts}


@contextmanager
def passing() -> Iterator[list[str]]:
    """The files of ours of which a line of a function runs inside the block, in the order of their first lines."""
    passed: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if event == "call" and file.startswith(OURS) and file not in passed and not LEFT_OUT.search(file):
            passed.append(file)

    sys.setprofile(note)
    try:
        yield passed
    finally:
        sys.setprofile(None)


class App:
    """The contact service's functions, called as the host calls them."""

    def __init__(self, database: DatabaseProxy, topic: Topic) -> None:
        self._functions = {name: each.get_user_function() for name, each in functions().items()}
        self._contacts = database.get_container_client("contacts")
        self._topic = topic
        self._seen: set[str] = set()

    async def _call(self, name: str, **arguments: Any) -> tuple[Any, list[str]]:
        context = SimpleNamespace(trace_context=None, retry_context=None)
        with passing() as passed:
            return await self._functions[name](**arguments, context=context), passed

    async def request(self, name: str, body: Any, **route: str) -> tuple[str, list[str]]:
        """The contact's id, and the files passed."""
        headers, url = {"Content-Type": "application/json"}, "http://localhost/api/contacts"
        request = func.HttpRequest(
            "POST", url, headers=headers, route_params=route, body=json.dumps(body).encode()
        )
        answer, passed = await self._call(name, req=request)
        assert answer.status_code in (200, 201), answer.get_body()
        return str(json.loads(answer.get_body())["id"]), passed

    async def event(self, contact: str) -> list[str]:
        """The files that the contact's new documents pass on their way to the topic."""
        stored = self._contacts.query_items("SELECT * FROM c", partition_key=contact)
        new = [each async for each in stored if each["_etag"] not in self._seen]
        self._seen |= {each["_etag"] for each in new}
        documents = func.DocumentList(map(func.Document.from_dict, new))
        return (await self._call("relay", documents=documents))[1]

    async def message(self, contact: str) -> list[str]:
        """The files that the contact's next message passes on its way to the directory."""
        [received] = await self._topic.receive(contact, 1)
        message = SimpleNamespace(
            message_id=received.message_id,
            sequence_number=received.sequence_number,
            enqueued_sequence_number=None,
            correlation_id=received.correlation_id,
            application_properties=received.application_properties,
            get_body=lambda: b"".join(received.body),
        )
        return (await self._call("contact_directory", message=message))[1]


@pytest.fixture
async def app(
    cosmos_server: Service, servicebus_server: Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[App]:
    topic = Topic(servicebus_server)
    await topic.create(SUBSCRIPTION)
    async with contacts_database(cosmos_server) as database:
        for name, value in {
            "COSMOS": cosmos_connection(cosmos_server),
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
            "SERVICEBUS_SUBSCRIPTION": SUBSCRIPTION,
        }.items():
            monkeypatch.setenv(name, value)
        yield App(database, topic)
    await topic.delete()


async def test_the_routes_are_those_that_a_request_an_event_and_a_message_take(app: App) -> None:
    """Of the second change: the first one of a process also opens what stays open, and makes the contact's entry."""
    contact, _ = await app.request("create_contact", DETAILS_JSON)
    await app.event(contact)
    await app.message(contact)
    _, request = await app.request("patch_contact", {"name": {"firstName": "Jane"}}, id=contact)
    event, message = await app.event(contact), await app.message(contact)
    passed = {"A request": request, "An event": event, "A message": message}
    documented = routes()
    assert set(documented) == set(passed)
    for name, files in passed.items():
        assert documented[name] == files, (
            f"docs/internals/reading-routes.md, {name}: the files are, in order: " + " ".join(files)
        )
