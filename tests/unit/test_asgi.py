"""The edges of ASGI, a FastAPI router and an application: what comes in is bounded, and what no call takes is told."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from cosmos_outbox.http import Action, Resource, asgi_app
from cosmos_outbox.testing import in_memory
from tests.support.tasks import Details, NobodyGiven, Task, TaskDone, TaskError, service
from tests.unit.test_problems import mounted, router

JSON = {"Content-Type": "application/json"}
TASK = b'{"title": "Water the plants"}'
LIMIT = 64 * 1024
NOWHERE = "/api/tasks/0f8fad5b-d9cb-469f-a165-70867728950e"
both = pytest.mark.parametrize("of", [router, mounted])


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x")


@pytest.fixture
async def api() -> AsyncIterator[httpx.AsyncClient]:
    async with in_memory(service), client(mounted("/api")) as asked:
        yield asked


async def created(api: httpx.AsyncClient, **details: Any) -> str:
    """The path of a task."""
    made = await api.post("/api/tasks", json={"title": "Water the plants"} | details)
    assert made.status_code == 201, made.text
    return made.headers["Location"]


async def in_parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@both
@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((TASK[:9], TASK[9:]), 201),
        ((TASK.ljust(LIMIT),), 201),
        ((TASK.ljust(LIMIT - 1), b" "), 201),
        ((TASK.ljust(LIMIT + 1),), 413),
        ((TASK.ljust(LIMIT), b" "), 413),
    ],
)
async def test_a_body_is_put_together_and_taken_up_to_its_limit(
    of: Callable[[str], Any], parts: tuple[bytes, ...], status: int
) -> None:
    async with in_memory(service), client(of("/api")) as api:
        answer = await api.post("/api/tasks", content=in_parts(*parts), headers=JSON)
    assert answer.status_code == status


@both
@pytest.mark.parametrize("first", [b"", b" " * 1024])
async def test_of_a_body_without_an_end_no_more_is_read_than_is_taken(
    of: Callable[[str], Any], first: bytes
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield first
        for _ in range(65 - bool(first)):
            yield b" " * 1024
        pytest.fail("more was read than can be taken")

    async with in_memory(service), client(of("/api")) as api:
        assert (await api.post("/api/tasks", content=endless(), headers=JSON)).status_code == 413


@both
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/tasks", "GET, HEAD, POST"),
        ("POST", NOWHERE, "DELETE, GET, HEAD, PATCH, PUT"),
        ("GET", f"{NOWHERE}/finish", "POST"),
    ],
)
async def test_a_path_tells_the_methods_that_it_takes(
    of: Callable[[str], Any], method: str, path: str, allowed: str
) -> None:
    async with client(of("/api")) as api:
        answer = await api.request(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.json()["type"] == "/api/problems/method-not-allowed"
    assert answer.json()["detail"] == f"This path does not take {method}; it takes {allowed}."


async def test_a_path_that_is_not_there_tells_those_that_are() -> None:
    async with client(mounted("/api")) as api:
        answer = await api.get("/api/task")
    assert (answer.status_code, answer.json()["type"]) == (404, "/api/problems/not-found")
    assert answer.json()["detail"] == "There is nothing at this path: there is /tasks."


async def test_the_calls_stand_in_the_programs_own_description() -> None:
    paths = router("/api").openapi()["paths"]
    assert {path: {method: call["summary"] for method, call in told.items()} for path, told in paths.items()} == {
        "/api/tasks": {
            "post": "Create a office_task",
            "get": "List tasks, a page a call",
        },
        "/api/tasks/{id}": {
            "get": "Read a office_task; Cache-Control: no-cache asks for no older state than that of the call",
            "patch": "Change a office_task with a JSON Merge Patch (RFC 7396)",
            "put": "Replace a office_task; what was read may be sent back whole",
            "delete": "Delete a office_task",
        },
        "/api/tasks/{id}/history": {"get": "Read what changed of a office_task, a page a call"},
        "/api/tasks/{id}/give": {"post": "Give of a office_task"},
        "/api/tasks/{id}/finish": {"post": "Finish of a office_task"},
    }  # fmt: skip


async def test_the_programs_own_description_groups_the_calls_and_leads_nowhere_else() -> None:
    document = router("/api").openapi()
    assert {tag for told in document["paths"].values() for call in told.values() for tag in call["tags"]} == {
        "tasks"
    }
    assert "#/components/schemas/" not in json.dumps(document), "the program has no schemas of ours"


async def test_who_goes_before_the_request_has_come_leaves_nothing_in_the_programs_log() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        """Nobody is there."""

    scope = {"type": "http", "method": "POST", "path": "/api/tasks", "query_string": b"", "headers": []}
    async with in_memory(service) as memory:
        await router("/api")(scope, receive, send)
    assert memory.events == []


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("PATCH", "", {"title": "x"}),
        ("PUT", "", {"title": "x"}),
        ("POST", "/give", {"name": "Ann"}),
        ("DELETE", "", None),
    ],
)
async def test_the_answer_to_a_repeated_change_says_so(
    api: httpx.AsyncClient, method: str, path: str, sent: Any
) -> None:
    where, key = await created(api), {"Idempotency-Key": "1"}
    first, again = [await api.request(method, where + path, json=sent, headers=key) for _ in range(2)]
    assert first.status_code == again.status_code == (204 if method == "DELETE" else 200)
    assert first.content == again.content
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert first.headers["Written"] == again.headers["Written"] == f"{where.rpartition('/')[2]}:2"


@pytest.mark.parametrize(
    ("error", "first", "then"),
    [
        (TaskDone("it is done"), (409, "Task done"), (409, "Refused before")),
        (NobodyGiven("to whom?"), (422, "Nobody given"), (422, "Refused before")),
        (KeyError("a bug"), (500, "Internal error"), (200, None)),
        (TaskError("declared as one of the service"), (500, "Task error"), (200, None)),
    ],
)
async def test_a_refusal_stays_for_its_key_and_a_failure_of_the_service_does_not(
    error: Exception, first: tuple[int, str], then: tuple[int, str | None]
) -> None:
    errors = [error]

    def finish(task: Task, *, at: datetime) -> None:
        if errors:
            raise errors[0]
        task.finish(at=at)

    resource: Resource[Task, Details] = Resource(
        "tasks", Task, new=Details, create=Task.create, actions=[Action("finish", finish)],
        errors={TaskDone: 409, NobodyGiven: 422, TaskError: 500},
    )  # fmt: skip
    key = {"Idempotency-Key": "1"}
    async with in_memory(service), client(asgi_app(service, [resource])) as api:
        where = (await api.post("/tasks", json={"title": "x"})).headers["Location"]
        failed = await api.post(f"{where}/finish", headers=key)
        errors.clear()
        again = await api.post(f"{where}/finish", headers=key)
    assert (failed.status_code, failed.json()["title"]) == first
    assert (again.status_code, again.json().get("title") if then[1] else None) == then
