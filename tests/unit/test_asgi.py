"""The edges of ASGI, a FastAPI router and an application: input is bounded, and what no call takes is answered."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from cosmos_outbox.testing import in_memory
from tests.support.tasks import service
from tests.unit.test_problems import mounted, router

JSON = {"Content-Type": "application/json"}
TASK = b'{"title": "Water the plants"}'
LIMIT = 64 * 1024
UNKNOWN = "/api/tasks/0f8fad5b-d9cb-469f-a165-70867728950e"
both = pytest.mark.parametrize("of", [router, mounted])


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x")


@pytest.fixture
async def api() -> AsyncIterator[httpx.AsyncClient]:
    async with in_memory(service), client(mounted("/api")) as asked:
        yield asked


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
@pytest.mark.parametrize("second", ["one", "two", ""])
async def test_a_request_with_two_keys_is_refused(of: Callable[[str], Any], second: str) -> None:
    keys = [("Idempotency-Key", "one"), ("Idempotency-Key", second)]
    async with in_memory(service), client(of("/api")) as api:
        answer = await api.post("/api/tasks", content=TASK, headers=[*JSON.items(), *keys])
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json()["errors"]] == ["Idempotency-Key"]


@both
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/tasks", "GET, HEAD, POST"),
        ("POST", UNKNOWN, "DELETE, GET, HEAD, PATCH, PUT"),
        ("GET", f"{UNKNOWN}/finish", "POST"),
    ],
)
async def test_a_path_answers_the_methods_that_it_takes(
    of: Callable[[str], Any], method: str, path: str, allowed: str
) -> None:
    async with client(of("/api")) as api:
        answer = await api.request(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.json()["type"] == "/api/problems/method-not-allowed"
    assert answer.json()["detail"] == f"This path does not take {method}; it takes {allowed}."
