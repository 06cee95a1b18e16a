"""The program as a process of its own on a local Azure of the test's own: what is stored arrives, whatever dies."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from azure.cosmos import CosmosClient

from cosmos_outbox.testing import LocalAzure, Program, eventually
from examples.fastapi.app import service

ROOT = Path(__file__).resolve().parents[3]
ADA = {"name": "Ada Lovelace", "email": "ada@contoso.com"}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAzure]:
    """Shared: a test that kills a part of it starts it again."""
    with LocalAzure(tmp_path_factory.mktemp("people"), service) as azure:
        yield azure


def serving(people: LocalAzure, name: str, **settings: str) -> Program:
    """``uvicorn`` with the program, on a free port."""
    return people.program(
        sys.executable, "-m", "uvicorn", "examples.fastapi.app:app", "--port", "0",
        ready=r"Uvicorn running on (http://\S+)", folder=ROOT, name=name, **settings,
    )  # fmt: skip


@pytest.fixture(scope="module")
def program(people: LocalAzure) -> Iterator[Program]:
    """Shared too."""
    started = serving(people, "program")
    yield started
    started.terminate()


@pytest.fixture
async def api(program: Program) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=program.address, timeout=30) as client:
        yield client


async def listed(api: httpx.AsyncClient) -> dict[str, tuple[str, int]]:
    """The directory: each person's name, and the newest event that the entry shows."""
    items = (await api.get("/directory")).json()["items"]
    return {each["id"]: (each["name"], each["sequence"]) for each in items}


async def test_what_is_changed_here_arrives_in_the_directory(api: httpx.AsyncClient) -> None:
    added = await api.post("/people", json=ADA)
    where, person = added.headers["Location"], added.json()["id"]
    assert added.status_code == 201
    assert added.json() == {
        **ADA, "id": person, "createdAt": added.json()["createdAt"], "sequence": 1, "etag": added.headers["ETag"]
    }  # fmt: skip

    async def shows(*wanted: object) -> bool:
        return (await listed(api)).get(person) == wanted

    await eventually(lambda: shows("Ada Lovelace", 1))
    changed = await api.patch(where, json={"name": "Ada King"}, headers={"If-Match": added.headers["ETag"]})
    assert (changed.status_code, changed.json()["sequence"]) == (200, 2)
    await eventually(lambda: shows("Ada King", 2))
    assert (await api.get(where)).json()["name"] == "Ada King"
    assert (await api.delete(where)).status_code == 204

    async def gone() -> bool:
        return person not in await listed(api)

    await eventually(gone)
    assert (await api.get(where)).status_code == 404
    assert (await api.get("/readyz")).json() == {"status": "ready"}


async def test_what_cannot_be_done_is_refused(api: httpx.AsyncClient) -> None:
    added = await api.post("/people", json=ADA)
    where = added.headers["Location"]
    changed = await api.patch(where, json={"name": "Ada King"})
    stale = await api.patch(where, json={"name": "X"}, headers={"If-Match": added.headers["ETag"]})
    assert stale.status_code == 412
    assert (await api.patch(where, json={"name": ""})).status_code == 400
    assert (await api.patch(where, json={"age": 36})).status_code == 400
    assert (await api.post("/people", json=ADA | {"age": 36})).status_code == 400
    assert (await api.get("/people/0f8fad5b-d9cb-469f-a165-70867728950e")).status_code == 404
    assert (await api.get(where)).json() == changed.json()
    assert changed.json() | {"etag": ""} == {**added.json(), "name": "Ada King", "sequence": 2, "etag": ""}


async def test_a_repeated_call_adds_nobody_twice_and_everybody_is_listed(api: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": uuid4().hex}
    added = [await api.post("/people", json=ADA, headers=key) for _ in range(2)]
    assert [each.headers.get("Idempotency-Replayed") for each in added] == [None, "true"]
    assert added[0].json() == added[1].json()
    other = await api.post("/people", json=ADA)
    token, seen = None, set[str]()
    while token or not seen:
        query = {"pageSize": "1"} | ({"continuationToken": token} if token else {})
        page = (await api.get("/people", params=query)).json()
        token, seen = page["continuationToken"], seen | {each["id"] for each in page["items"]}
    assert {added[0].json()["id"], other.json()["id"]} <= seen


@pytest.mark.long
async def test_a_stop_gives_back_what_it_holds_and_a_start_waits_for_the_store(
    people: LocalAzure, program: Program
) -> None:
    program.terminate()
    assert "Application shutdown complete" in program.log.read_text()
    assert "Traceback" not in program.log.read_text()
    leases = CosmosClient.from_connection_string(people.cosmos.connection_string)
    container = leases.get_database_client("people").get_container_client("people-leases")
    owners = [each["Owner"] for each in container.read_all_items() if "Owner" in each]
    assert owners == [None], "the next one need not wait until the lease expires"

    people.cosmos.kill()
    program.start()
    async with httpx.AsyncClient(base_url=program.address, timeout=30) as api:
        assert (await api.get("/readyz")).status_code == 503
        people.cosmos.start()

        async def ready() -> bool:
            return (await api.get("/readyz")).status_code == 200

        await eventually(ready, within=60)
        added = await api.post("/people", json=ADA)

        async def there() -> bool:
            return added.json()["id"] in await listed(api)

        await eventually(there)


@pytest.mark.long  # test_people_simulated.py has crashes at any moment
async def test_what_was_stored_before_a_crash_arrives_after_it(
    people: LocalAzure, program: Program, api: httpx.AsyncClient
) -> None:
    people.servicebus.kill()  # nothing can be forwarded now
    added = await api.post("/people", json=ADA)
    assert added.status_code == 201
    program.kill()
    people.servicebus.start()
    program.start()
    async with httpx.AsyncClient(base_url=program.address, timeout=30) as again:

        async def there() -> bool:
            return (await listed(again)).get(added.json()["id"]) == ("Ada Lovelace", 1)

        await eventually(there, within=60)


@pytest.mark.long
async def test_over_a_queue_in_the_topics_place_all_arrives_too(tmp_path: Path) -> None:
    with LocalAzure(tmp_path) as azure:
        azure.make(Path(__file__).parents[1])
        program = serving(azure, "over a queue", SERVICEBUS_QUEUE="people-queue")
        async with httpx.AsyncClient(base_url=program.address, timeout=30) as api:
            added = await api.post("/people", json=ADA)
            await api.patch(added.headers["Location"], json={"name": "Ada King"})

            async def is_listed() -> bool:
                return await listed(api) == {added.json()["id"]: ("Ada King", 2)}

            await eventually(is_listed)
            assert (await api.get("/readyz")).json() == {"status": "ready"}
        program.terminate()
        topic = await azure.receive("directory", 10, topic="people-events", within=1)
    assert topic == [], "none went to the topic"
