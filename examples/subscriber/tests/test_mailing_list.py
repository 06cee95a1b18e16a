"""The publisher and the subscriber as two processes; they share a topic and an API, and no store."""

import json
import re
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.worker import subscriber as worker
from cosmos_outbox.worker.running import running
from devstack.testing import Process, Stack, eventually
from examples.subscriber.service import BLIND_LIST, LIST, blind, service

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
PUBLISHER = ROOT / "examples" / "fastapi"
ADA = {"name": "Ada Lovelace", "email": "ada@contoso.com"}


class Publisher(Process):
    """The people of ``examples/fastapi``, as their team runs them."""

    def __init__(self, stack: Stack) -> None:
        command = [sys.executable, "-m", "uvicorn", "examples.fastapi.app:app", "--port", "0"]
        super().__init__("people", stack.folder / "people.log", command, stack.settings, ROOT)

    def wait_until_ready(self, process: Any) -> None:
        """Until it serves."""
        deadline = time.monotonic() + 40
        while "Uvicorn running on" not in self.log.read_text():
            assert process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    @property
    def address(self) -> str:
        found = re.search(r"Uvicorn running on (http://\S+)", self.log.read_text())
        assert found
        return found[1]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("mailing")) as started:
        started.make(PUBLISHER)
        yield started


@pytest.fixture(scope="module")
def publisher(stack: Stack) -> Publisher:
    return stack.add(Publisher(stack))


@pytest.fixture
async def people(publisher: Publisher) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=publisher.address, timeout=30) as client:
        yield client


@pytest.fixture
def settings(stack: Stack, publisher: Publisher, tmp_path: Path) -> dict[str, str]:
    """All that the subscriber is given: it gets no way to the publisher's store."""
    return {
        "SERVICEBUS": stack.servicebus.connection_string,
        "PEOPLE_API": f"{publisher.address}/people",
        "MAILING_DATABASE": str(tmp_path / "mailing-list.db"),
    }


async def missed(stack: Stack, count: int) -> list[ServiceBusMessage]:
    """Take messages from the subscription as nobody should: they are lost to the subscriber."""
    taken: list[ServiceBusMessage] = []
    async with ServiceBusClient.from_connection_string(stack.servicebus.connection_string) as client:
        while len(taken) < count:
            async with client.get_subscription_receiver(
                "people-events", "mailing-list", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10
            ) as receiver:
                for message in await receiver.receive_messages(1, max_wait_time=5):
                    taken.append(
                        ServiceBusMessage(
                            b"".join(message.body), session_id=message.session_id, content_type="application/json",
                            application_properties=message.application_properties, subject=message.subject,
                        )
                    )  # fmt: skip
                    await receiver.complete_message(message)
    return taken


async def publish_again(stack: Stack, message: ServiceBusMessage) -> None:
    """As the publisher's operator does: the same event in a message with an id of its own."""
    message.message_id = f"again-{json.loads(str(message))['id']}"
    async with (
        ServiceBusClient.from_connection_string(stack.servicebus.connection_string) as client,
        client.get_topic_sender("people-events") as sender,
    ):
        await sender.send_messages(message)


async def test_the_list_is_kept_in_a_file_of_its_own(
    stack: Stack, people: httpx.AsyncClient, settings: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "examples.subscriber"]
    mailing = stack.add(Process("mailing", stack.folder / "mailing.log", command, settings, ROOT))
    person = (await people.post("/people", json=ADA)).json()["id"]
    file = Path(settings["MAILING_DATABASE"])

    def listed() -> dict[str, tuple[int, str | None]]:
        with sqlite3.connect(file) as connection:
            made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone()
            query = "SELECT id, last_sequence, state FROM entries"
            rows = connection.execute(query).fetchall() if made else []
        connection.close()
        return {each[0]: (each[1], each[2]) for each in rows}

    def shows(sequence: int, **state: str) -> bool:
        if not file.exists():
            return False
        found = listed().get(person, (0, None))
        return found[0] == sequence and (json.loads(found[1]) if found[1] else {}) == state

    await eventually(lambda: shows(1, **ADA), within=60)
    await people.patch(f"/people/{person}", json={"name": "Ada King"})
    await eventually(lambda: shows(2, **ADA | {"name": "Ada King"}))
    await people.delete(f"/people/{person}")
    await eventually(lambda: shows(3))
    assert mailing.terminate() == 0
    assert "Traceback" not in mailing.log.read_text()


async def test_an_event_that_was_lost_is_healed_from_the_publishers_api(
    stack: Stack, people: httpx.AsyncClient, settings: dict[str, str]
) -> None:
    async with running(service, environment=settings, slots=2) as at_work:
        model = at_work.wired.read_model(LIST)

        async def shown() -> list[tuple[str, int]]:
            page = await model.listing.page([], "email", 50, None)
            return [(each.state.name, each.sequence) for each in page.items]

        person = (await people.post("/people", json=ADA)).json()["id"]
        await eventually(model.inbox.counts.total)
        assert await shown() == [("Ada Lovelace", 1)]
        assert await at_work.health.trouble() is None
    await people.patch(f"/people/{person}", json={"name": "Lost"})
    await missed(stack, 1)
    await people.patch(f"/people/{person}", json={"email": "king@contoso.com"})
    async with running(service, environment=settings, slots=2) as at_work:
        model = at_work.wired.read_model(LIST)

        async def healed() -> bool:
            return await shown() == [("Lost", 3)]

        await eventually(healed)


async def test_without_a_source_a_gap_waits_until_the_event_is_published_again(
    stack: Stack, people: httpx.AsyncClient, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "WATCH_SECONDS", 0.2)
    del settings["PEOPLE_API"]
    person = (await people.post("/people", json=ADA)).json()["id"]
    [lost] = await missed(stack, 1)
    await people.patch(f"/people/{person}", json={"name": "Ada King"})
    async with running(blind, environment=settings, slots=2) as at_work:
        retrier = at_work.wired.subscriptions[BLIND_LIST.name].subscriber.retrier

        async def waits() -> bool:
            return (await retrier.counts())[RecordState.WAITING] == 1

        await eventually(waits)
        [record] = (await retrier.page(10, None)).items
        assert "publish the events of that time again" in record.reason
        model = at_work.wired.read_model(BLIND_LIST)
        assert (await model.listing.page([], "email", 50, None)).items == []
        await publish_again(stack, lost)

        async def healed() -> bool:
            page = await model.listing.page([], "email", 50, None)
            return [(each.state.name, each.sequence) for each in page.items] == [("Ada King", 2)]

        await eventually(healed)
        await eventually(lambda: _none_waits(retrier))


async def _none_waits(retrier: Any) -> bool:
    return bool((await retrier.counts())[RecordState.WAITING] == 0)


async def test_a_setting_that_is_missing_is_told_at_the_start(settings: dict[str, str]) -> None:
    del settings["SERVICEBUS"]
    with pytest.raises(Misconfigured, match="neither SERVICEBUS nor"):
        async with running(service, environment=settings):
            pass
