"""The publisher and the subscriber as two processes; they share a topic and an API, and no store."""

import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cosmos_outbox import running
from cosmos_outbox.errors import Misconfigured
from cosmos_outbox.testing import LocalAzure, Message, Program, eventually
from examples.fastapi.app import service as publishing
from examples.subscriber.service import BLIND_LIST, LIST, blind, service

ROOT = Path(__file__).resolve().parents[3]
ADA = {"name": "Ada Lovelace", "email": "ada@contoso.com"}


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAzure]:
    with LocalAzure(tmp_path_factory.mktemp("mailing"), publishing, service, blind) as started:
        yield started


@pytest.fixture(scope="module")
def publisher(azure: LocalAzure) -> Program:
    """The people of ``examples/fastapi``, as their team runs them."""
    return azure.program(
        sys.executable, "-m", "uvicorn", "examples.fastapi.app:app", "--port", "0",
        ready=r"Uvicorn running on (http://\S+)", folder=ROOT,
    )  # fmt: skip


@pytest.fixture
async def people(publisher: Program) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=publisher.address, timeout=30) as client:
        yield client


@pytest.fixture
def settings(azure: LocalAzure, publisher: Program, tmp_path: Path) -> dict[str, str]:
    """All that the subscriber is given: it gets no way to the publisher's store."""
    return {
        "SERVICEBUS": azure.settings["SERVICEBUS"],
        "PEOPLE_API": f"{publisher.address}/people",
        "MAILING_DATABASE": str(tmp_path / "mailing-list.db"),
    }


async def missed(azure: LocalAzure, subscription: str) -> Message:
    """Take a message as nobody should: it is lost to the subscriber."""
    [lost] = await azure.receive(subscription, 1)
    return lost


async def test_the_list_is_kept_in_a_file_of_its_own(
    azure: LocalAzure, people: httpx.AsyncClient, settings: dict[str, str]
) -> None:
    mailing = azure.program(sys.executable, "-m", "examples.subscriber", folder=ROOT, **settings)
    person = (await people.post("/people", json=ADA)).json()["id"]
    file = Path(settings["MAILING_DATABASE"])

    def listed() -> dict[str, tuple[int, Any]]:
        with sqlite3.connect(file) as connection:
            made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'documents'").fetchone()
            query = "SELECT document FROM documents WHERE kind = 'entries of mailing-list'"
            found = [json.loads(row[0]) for row in (connection.execute(query).fetchall() if made else [])]
        connection.close()
        return {each["id"]: (each["lastSequence"], each["data"]) for each in found}

    def shows(sequence: int, **state: str) -> bool:
        if not file.exists():
            return False
        found = listed().get(person, (0, None))
        return found[0] == sequence and (found[1] or {}) == state

    await eventually(lambda: shows(1, **ADA), within=60)
    await people.patch(f"/people/{person}", json={"name": "Ada King"})
    await eventually(lambda: shows(2, **ADA | {"name": "Ada King"}))
    await people.delete(f"/people/{person}")
    await eventually(lambda: shows(3))
    assert mailing.terminate() == 0
    assert "Traceback" not in mailing.log.read_text()


async def test_an_event_that_was_lost_is_healed_from_the_publishers_api(
    azure: LocalAzure, people: httpx.AsyncClient, settings: dict[str, str]
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
    await missed(azure, LIST.name)
    await people.patch(f"/people/{person}", json={"email": "king@contoso.com"})
    async with running(service, environment=settings, slots=2) as at_work:
        model = at_work.wired.read_model(LIST)

        async def healed() -> bool:
            return await shown() == [("Lost", 3)]

        await eventually(healed)


@pytest.mark.long  # test_mailing_list_in_memory has both lists
async def test_without_a_source_a_gap_waits_until_the_event_is_published_again(
    azure: LocalAzure, people: httpx.AsyncClient, settings: dict[str, str]
) -> None:
    del settings["PEOPLE_API"]
    person = (await people.post("/people", json=ADA)).json()["id"]
    lost = await missed(azure, BLIND_LIST.name)
    await people.patch(f"/people/{person}", json={"name": "Ada King"})
    async with running(blind, environment=settings, slots=2) as at_work:
        subscriber = at_work.wired.subscriptions[BLIND_LIST.name].subscriber

        async def set_aside() -> list[str]:
            return [record.reason for record in (await subscriber.retrier.page(10, None)).items]

        [reason] = await eventually(set_aside)
        assert "publish the events of that time again" in reason
        model = at_work.wired.read_model(BLIND_LIST)
        assert (await model.listing.page([], "email", 50, None)).items == []
        await azure.send(lost, message_id=f"again-{lost.id}")  # as the publisher's operator does

        async def healed() -> bool:
            await subscriber.watch()  # what is done every minute
            page = await model.listing.page([], "email", 50, None)
            return [(each.state.name, each.sequence) for each in page.items] == [("Ada King", 2)]

        await eventually(healed)
        assert await set_aside() == []


async def test_a_missing_setting_is_refused_at_the_start(settings: dict[str, str]) -> None:
    del settings["SERVICEBUS"]
    with pytest.raises(Misconfigured, match="neither SERVICEBUS nor"):
        async with running(service, environment=settings):
            pass
