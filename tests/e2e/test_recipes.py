"""The recipes of docs/operate/recipes.md are walked with the commands that stand there, in an operator's shell."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from azure.cosmos.aio import ContainerProxy, DatabaseProxy

from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent, ParkedState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.service import Wired
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker import subscriber as subscriber_worker
from devstack.testing import Service, eventually
from domain.values import ContactDetails
from tests.support.azure import CONTACTS, DIRECTORY, Topic, contacts_database
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.paths import ROOT
from tests.support.use_cases import contacts_of, read_model_of, wire

SUBSCRIPTION = "directory"
RECIPES = {
    section.splitlines()[0]: re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for section in re.split(
        r"^## ", (ROOT / "docs" / "operate" / "recipes.md").read_text(), flags=re.MULTILINE
    )[1:]
}
"""The blocks of commands of each recipe."""


@dataclass
class Shell:
    """An operator's shell in an empty folder: the app's settings, and the command on the path."""

    folder: Path
    environment: dict[str, str]

    async def run(self, block: str, **ids: str) -> tuple[int, str]:
        """What a block of the page says with these ids in the places that are to be filled in; the last exit code."""
        for name, value in ids.items():
            assert name in block
            block = block.replace(name, value)
        ended = await asyncio.to_thread(
            subprocess.run,
            ["sh", "-c", block],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        return ended.returncode, ended.stdout + ended.stderr


@dataclass
class World:
    shell: Shell
    database: DatabaseProxy
    application: Wired

    @property
    def contacts(self) -> ContainerProxy:
        return self.database.get_container_client(CONTACTS)

    async def create(self) -> UUID:
        return (await contacts_of(self.application).create(DETAILS, ORIGIN)).aggregate.id

    async def change(self, contact_id: UUID, email: str) -> None:
        def revised(before: ContactDetails) -> ContactDetails:
            return before.model_copy(update={"email": email})

        await contacts_of(self.application).revise(contact_id, revised, ORIGIN)

    async def entry(self, contact_id: UUID) -> tuple[int, str | None] | None:
        """Sequence and email of the directory's entry."""
        key = AggregateKey("contact", str(contact_id))
        found = await read_model_of(self.application).inbox.entries.newest(key)
        if found is None:
            return None
        return found.entry.last_sequence, found.entry.state.email if found.entry.state else None


@pytest.fixture
async def world(cosmos_server: Service, servicebus_server: Service, tmp_path: Path) -> AsyncIterator[World]:
    topic = Topic(servicebus_server)
    await topic.create(SUBSCRIPTION)
    command = tmp_path / "bin" / "cosmos-outbox"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cosmos_outbox "$@"\n')
    command.chmod(0o755)
    async with contacts_database(cosmos_server) as database:
        environment = {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
            "SERVICEBUS_SUBSCRIPTION": SUBSCRIPTION,
            "RELAY_SEND_SECONDS": "5",
            "RELAY_POLL_DELAY_MS": "50",
        }
        path = os.pathsep.join([str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        of_shell = {"PATH": path, "PYTHONPATH": str(ROOT), "OUTBOX_SERVICE": "infra.bootstrap"}
        shell = Shell(tmp_path, environment | of_shell)
        application = wire(environment)
        async with application.outbox.resources:
            yield World(shell, database, application)
    await topic.delete()


@asynccontextmanager
async def at_work(world: World, *workers: Any) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = [asyncio.create_task(worker(wire(world.shell.environment), stop)) for worker in workers]
    yield
    stop.set()
    await asyncio.gather(*running)


def becomes(world: World, contact_id: UUID, sequence: int, email: str) -> Callable[[], Any]:
    async def is_so() -> bool:
        return await world.entry(contact_id) == (sequence, email)

    return is_so


async def parked(world: World, number: int) -> dict[ParkedState, str]:
    """The ids of the parked events by their states, once there are so many."""

    async def all_there() -> Sequence[ParkedEvent] | None:
        page = await world.application.operator.parking.page(100, None)
        return page.items if len(page.items) == number else None

    found = await eventually(all_there)
    assert found
    return {each.state: each.id for each in found}


async def poison(world: World, contact_id: UUID) -> str:
    """Sequence 2 of the contact without its action, and the contact's document with it; then a change behind it."""
    document = await world.contacts.read_item(str(contact_id), partition_key=str(contact_id))
    event_id = str(uuid4())
    data = {"id": event_id, "contactId": str(contact_id), "sequence": 2, "email": "two@contoso.com"}
    await world.contacts.create_item(
        {
            "id": event_id, "partitionKey": str(contact_id), "type": "domainEvent", "aggregateType": "contact",
            "data": {**data, "createdAt": "2026-03-01T12:00:00.25Z"}, "ttl": 600,
        }
    )  # fmt: skip
    document["data"] |= {"lastSequence": 2, "email": "two@contoso.com"}
    await world.contacts.replace_item(str(contact_id), document)
    await parked(world, 1)
    await world.change(contact_id, "three@contoso.com")
    return event_id


def edit(world: World, **data: Any) -> None:
    """What an operator does in an editor."""
    file = world.shell.folder / "document.json"
    document = json.loads(file.read_text())
    document["data"] |= data
    document.pop("digest", None)
    file.write_text(json.dumps(document))


@pytest.mark.long
async def test_a_poison_event_is_found_repaired_and_replayed(world: World) -> None:
    find, retry, _, afterwards = RECIPES["A poison event"]
    get, put = RECIPES["Repairing a document"]
    contact_id = await world.create()
    async with at_work(world, relay_worker.run, subscriber_worker.run):
        await eventually(becomes(world, contact_id, 1, DETAILS.email))
        event_id = await poison(world, contact_id)
        await parked(world, 2)

        listed, command = find.splitlines()
        code, said = await world.shell.run(listed)
        assert (code, "inTheWay" in said, "cosmos-outbox retry ID" in said) == (1, True, True)
        [in_the_way] = [line.split()[0] for line in said.splitlines() if line.split()[1] == "inTheWay"]
        code, said = await world.shell.run(command, STUCK_ID=in_the_way)
        assert (code, json.loads(said)["payload"]["id"]) == (0, event_id)

        code, said = await world.shell.run(retry, STUCK_ID=in_the_way)
        assert (code, "action" in said) == (1, True), said

        get_it = get.splitlines()[0].replace("CONTACT_ID", event_id, 1)
        _, said = await world.shell.run(get_it.replace(" get ", " show "), CONTACT_ID=str(contact_id))
        assert json.loads(said)["id"] == event_id
        await world.shell.run(get_it, CONTACT_ID=str(contact_id))
        edit(world, action="ContactEmailUpdatedEvent")
        code, said = await world.shell.run(put.replace("CONTACT_ID", event_id, 1), CONTACT_ID=str(contact_id))
        assert code == 0, said
        code, said = await world.shell.run(retry, STUCK_ID=in_the_way)
        assert code == 0, said

        await eventually(becomes(world, contact_id, 3, "three@contoso.com"))

        async def arrived() -> bool:
            code, said = await world.shell.run(afterwards, CONTACT_ID=str(contact_id))
            return code == 0 and said.startswith("nothing is stuck\n") and said.count(": sent") == 3

        await eventually(arrived)


@pytest.mark.long
async def test_an_inapplicable_message_is_applied_once_its_entry_is_deleted(world: World) -> None:
    find, retry, _ = RECIPES["A message that cannot be applied"]
    contact_id = await world.create()
    entries = world.database.get_container_client(DIRECTORY)
    async with at_work(world, relay_worker.run, subscriber_worker.run):
        await eventually(becomes(world, contact_id, 1, DETAILS.email))
        entry = await entries.read_item(str(contact_id), partition_key=str(contact_id))
        await entries.replace_item(
            str(contact_id), {name: value for name, value in entry.items() if name != "lastSequence"}
        )
        await world.change(contact_id, "two@contoso.com")
        listed, command = find.splitlines()

        async def record() -> str | None:
            _, said = await world.shell.run(listed)
            return str(said.split()[0]) if "waiting" in said else None

        record_id = await eventually(record)
        assert record_id
        code, said = await world.shell.run(command, STUCK_ID=record_id)
        assert (code, "two@contoso.com" in said) == (0, True)

        await entries.delete_item(str(contact_id), partition_key=str(contact_id))
        code, said = await world.shell.run(retry, STUCK_ID=record_id)
        assert code == 0, said
        await eventually(becomes(world, contact_id, 2, "two@contoso.com"))
        assert (await world.shell.run(listed))[0] == 0


@pytest.mark.long
async def test_an_unreadable_document_is_put_back_and_then_changed_as_wanted(world: World) -> None:
    get, put = RECIPES["Repairing a document"]
    contact_id = await world.create()
    stored = await world.contacts.read_item(str(contact_id), partition_key=str(contact_id))
    stored["data"].pop("email")
    await world.contacts.replace_item(str(contact_id), stored)
    with pytest.raises(ValueError, match="email"):
        await world.change(contact_id, "wanted@contoso.com")

    code, said = await world.shell.run(get, CONTACT_ID=str(contact_id))
    assert (code, _shows(said, 1)) == (0, True), said
    edit(world, email=DETAILS.email)
    await world.contacts.replace_item(str(contact_id), stored)  # somebody is faster
    code, said = await world.shell.run(put, CONTACT_ID=str(contact_id))
    assert (code, "CosmosAccessConditionFailedError" in said) == (1, True)

    await world.shell.run(get, CONTACT_ID=str(contact_id))
    edit(world, email=DETAILS.email)
    code, said = await world.shell.run(put, CONTACT_ID=str(contact_id))
    assert code == 0, said
    async with at_work(world, relay_worker.run, subscriber_worker.run):
        await world.change(contact_id, "wanted@contoso.com")
        await eventually(becomes(world, contact_id, 2, "wanted@contoso.com"))


def _shows(said: str, sequence: int) -> bool:
    """Whether a list of events has one with this sequence."""
    return re.search(rf"^{sequence}: ", said, re.MULTILINE) is not None
