"""The program without a server and without Azure: a call, its events, and what the directory makes of them."""

from collections.abc import AsyncIterator

import httpx
import pytest

from cosmos_outbox.testing import InMemory, in_memory
from examples.fastapi.app import DIRECTORY, app, service

ADA = {"name": "Ada Lovelace", "email": "ada@contoso.com"}


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(service) as made:
        yield made


@pytest.fixture
async def api(memory: InMemory) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)  # it runs no lifespan: relay and subscribers are the test's to play
    async with httpx.AsyncClient(transport=transport, base_url="http://people") as client:
        yield client


async def test_each_property_that_a_call_changes_is_an_event(
    memory: InMemory, api: httpx.AsyncClient
) -> None:
    added = await api.post("/people", json=ADA)
    changed = await api.patch(
        added.headers["Location"], json={"name": "Ada King", "email": "king@contoso.com"}
    )
    assert (added.status_code, changed.status_code, changed.json()["sequence"]) == (201, 200, 3)
    assert [event.action for event in memory.events] == [
        "PersonAddedEvent", "PersonRenamedEvent", "PersonEmailChangedEvent"
    ]  # fmt: skip
    await memory.deliver()
    assert (await api.get("/directory")).json()["items"] == [
        {"id": added.json()["id"], "sequence": 3, "name": "Ada King", "email": "king@contoso.com"}
    ]


async def test_the_directory_bears_events_that_come_again_late_or_not_at_all(
    memory: InMemory, api: httpx.AsyncClient
) -> None:
    added = await api.post("/people", json=ADA)
    await memory.deliver()
    await api.patch(added.headers["Location"], json={"name": "Ada King"})
    await api.patch(added.headers["Location"], json={"email": "king@contoso.com"})
    first, renamed, moved = memory.events
    for event in (moved, first, renamed, moved):
        assert await memory.deliver(event) == []
    entry = await memory.entry(DIRECTORY, added.json()["id"])
    assert entry is not None
    assert entry.state is not None
    assert (entry.state.name, entry.state.email, entry.last_sequence) == ("Ada King", "king@contoso.com", 3)


async def test_a_failure_has_the_status_that_says_what_to_do(
    memory: InMemory, api: httpx.AsyncClient
) -> None:
    memory.faults.throttled()
    answer = await api.post("/people", json=ADA)
    assert (answer.status_code, "Retry-After" in answer.headers) == (429, True)
    memory.faults.unavailable()
    assert (await api.post("/people", json=ADA)).status_code == 503
    memory.faults.answer_lost()
    assert (await api.post("/people", json=ADA)).status_code == 503
    assert len(memory.events) == 1, "the answer was lost after the change was stored"
    added = await api.post("/people", json=ADA)
    memory.faults.overtaken(8)
    changed = await api.patch(added.headers["Location"], json={"name": "Ada King"})
    assert changed.status_code == 409
