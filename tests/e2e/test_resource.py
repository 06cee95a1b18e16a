"""The calls that a resource declares keep the promises of the API under each server: Functions, FastAPI, ASGI.

Over real sockets against each of the three; the service is ``tests/support/tasks.py``.
"""

import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jsonschema
import pytest

from devstack.testing import Process, Stack
from tests.support.paths import ROOT

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""httpx would read all certificates for each client, which has no use for them here."""

APP = Path(__file__).parent / "apps" / "tasks"
TASK = {"title": "Water the plants", "place": {"room": "Hall", "floor": 2}}
pytestmark = pytest.mark.own_stack


class Program(Process):
    """``uvicorn`` with the program, on a free port."""

    def __init__(self, stack: Stack) -> None:
        command = [sys.executable, "-m", "uvicorn", "tests.support.tasks_program:app", "--port", "0"]
        super().__init__("program", stack.folder / "program.log", command, stack.settings, ROOT)

    def wait_until_ready(self, process: Any) -> None:
        deadline = time.monotonic() + 60
        while not self.addresses():
            assert process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def addresses(self) -> list[str]:
        return re.findall(r"Uvicorn running on (http://\S+)", self.log.read_text())


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("tasks"), {"PYTHONPATH": str(ROOT)}) as started:
        started.make(APP)
        started.run(APP)
        yield started


@pytest.fixture(scope="module")
def addresses(stack: Stack) -> dict[str, str]:
    [program] = stack.add(Program(stack)).addresses()
    return {
        "functions": f"{stack.functions.address.rstrip('/')}/api",
        "fastapi": f"{program}/api",
        "asgi": f"{program}/mounted",
    }


# Those of the program itself, below, are quick, and have FastAPI's router create, change, repeat and refuse.
@pytest.fixture(
    params=["functions", *(pytest.param(each, marks=pytest.mark.long) for each in ("fastapi", "asgi"))]
)
async def api(addresses: dict[str, str], request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=addresses[request.param], timeout=30, verify=_NO_TLS) as client:
        yield client


async def created(api: httpx.AsyncClient, **details: Any) -> tuple[str, httpx.Response]:
    """A new task's path below the API's root, and the answer."""
    answer = await api.post("/tasks", json=TASK | details)
    assert answer.status_code == 201, answer.text
    return f"/tasks/{answer.json()['id']}", answer


async def test_a_task_from_its_beginning_to_its_end(api: httpx.AsyncClient) -> None:
    where, made = await created(api)
    task = made.json()
    assert {name: task[name] for name in task if name not in ("id", "createdAt")} == {
        **TASK, "note": None, "owner": None, "doneAt": None, "sequence": 1, "etag": made.headers["ETag"]
    }  # fmt: skip
    assert made.headers["Location"] == f"{api.base_url.path.rstrip('/')}{where}"
    assert made.headers["Cache-Control"] == "no-store"
    read = await api.get(where)
    assert (read.status_code, read.json(), read.headers["ETag"]) == (200, task, made.headers["ETag"])
    assert (read.headers["Content-Type"], read.headers["Cache-Control"]) == (
        "application/json",
        "private, no-cache",
    )
    same = await api.get(where, headers={"If-None-Match": read.headers["ETag"]})
    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", read.headers["ETag"])
    newest = await api.get(where, headers={"Cache-Control": "no-cache"})
    assert newest.json() == task
    head = await api.head(where)
    assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", read.headers["ETag"])

    patch = {"title": "Water them", "place": {"floor": None}}
    changed = await api.patch(
        where, json=patch, headers={"If-Match": read.headers["ETag"], "Content-Type": "application/merge-patch+json"}
    )  # fmt: skip
    assert changed.status_code == 200, changed.text
    assert (changed.json()["title"], changed.json()["place"]) == (
        "Water them",
        {"room": "Hall", "floor": None},
    )
    assert changed.json()["sequence"] == 3, "each changed property is an event"
    again = await api.patch(where, json=patch)
    assert (again.json()["sequence"], again.headers["ETag"]) == (3, changed.headers["ETag"])
    stale = await api.patch(where, json={"note": "x"}, headers={"If-Match": read.headers["ETag"]})
    assert stale.status_code == 412

    given = await api.post(f"{where}/give", json={"name": "Ada"})
    assert (given.status_code, given.json()["owner"], given.json()["sequence"]) == (200, "Ada", 4)
    refused = await api.post(f"{where}/give", json={"name": "nobody"})
    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "a task has somebody: give it to a person",
    )
    stale = await api.post(f"{where}/finish", headers={"If-Match": read.headers["ETag"]})
    assert stale.status_code == 412
    finished = await api.post(f"{where}/finish", headers={"If-Match": given.headers["ETag"]})
    assert (finished.status_code, finished.json()["doneAt"] is None) == (200, False)
    for refused in (await api.post(f"{where}/finish"), await api.patch(where, json={"note": "late"})):
        assert (refused.status_code, refused.json()["title"]) == (409, "Task done"), "not 422, as of its base"

    stale = await api.delete(where, headers={"If-Match": given.headers["ETag"]})
    assert stale.status_code == 412
    deleted = await api.delete(where, headers={"If-Match": finished.headers["ETag"]})
    assert (deleted.status_code, deleted.content) == (204, b"")
    for gone in (
        await api.get(where),
        await api.delete(where),
        await api.patch(where, json={"note": "x"}),
        await api.post(f"{where}/finish"),
    ):
        assert gone.status_code == 404


JSON = {"Content-Type": "application/json"}
UNKNOWN = "/tasks/0f8fad5b-d9cb-469f-a165-70867728950e"


REFUSED: list[tuple[str, str, dict[str, Any], int, list[str]]] = [
    ("POST", "/tasks", {"json": {}}, 400, ["title"]),
    ("POST", "/tasks", {"json": TASK | {"place": {"room": "", "x": 1}}}, 400, ["place.room", "place.x"]),
    ("POST", "/tasks", {"json": TASK | {"id": "7"}}, 400, ["id"]),
    ("POST", "/tasks", {"json": []}, 400, ["body"]),
    ("POST", "/tasks", {"content": b"{", "headers": JSON}, 400, ["body"]),
    ("POST", "/tasks", {"content": b'{"title": "a", "title": "b"}', "headers": JSON}, 400, ["body"]),
    ("POST", "/tasks", {"content": b" " * 65_537, "headers": JSON}, 413, ["body"]),
    ("POST", "/tasks", {"content": b" " * 500_000, "headers": JSON}, 413, ["body"]),
    ("POST", "/tasks", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, ["Content-Type"]),
    ("POST", "/tasks", {"json": TASK, "headers": {"If-Match": '"1"'}}, 400, ["If-Match"]),
    ("POST", "/tasks", {"json": TASK, "headers": {"Idempotency-Key": "a b"}}, 400, ["Idempotency-Key"]),
    ("PATCH", UNKNOWN, {"json": {"note": "x"}, "headers": {"Idempotency-Key": "a b"}}, 400, ["Idempotency-Key"]),
    ("PATCH", UNKNOWN, {"json": {"note": "x"}, "headers": {"Idempotency-Key": "k"}}, 404, []),
    ("DELETE", UNKNOWN, {"headers": {"Idempotency-Key": "k"}}, 404, []),
    ("GET", UNKNOWN, {"headers": {"If-Match": '"1"'}}, 400, ["If-Match"]),
    ("PATCH", UNKNOWN, {"json": {"note": "x"}, "headers": {"If-Match": "1"}}, 400, ["If-Match"]),
    ("PATCH", UNKNOWN, {"content": b"x"}, 415, ["Content-Type"]),
    ("PUT", UNKNOWN, {"json": TASK}, 404, []),
    ("PUT", "/tasks/7", {"json": TASK}, 404, []),
    ("PUT", UNKNOWN, {"json": TASK, "headers": {"If-None-Match": "*"}}, 404, []),
    ("PUT", UNKNOWN, {"json": TASK, "headers": {"Idempotency-Key": "k"}}, 404, []),
    ("PUT", UNKNOWN, {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, ["Content-Type"]),
    ("POST", f"{UNKNOWN}/give", {"json": {}}, 400, ["name"]),
    ("GET", "/tasks?pageSize=0", {}, 400, ["pageSize"]),
    ("GET", "/tasks?pageSize=101", {}, 400, ["pageSize"]),
    ("GET", "/tasks?continuation=x", {}, 400, ["continuation"]),
    ("GET", "/tasks?continuationToken=forged", {}, 400, ["continuationToken"]),
    ("GET", UNKNOWN, {}, 404, []),
    ("PATCH", UNKNOWN, {"json": {"note": "x"}}, 404, []),
    ("DELETE", UNKNOWN, {}, 404, []),
    ("POST", f"{UNKNOWN}/finish", {}, 404, []),
    ("GET", "/tasks/7", {}, 404, []),
    ("DELETE", "/tasks/7", {}, 404, []),
]  # fmt: skip


async def test_what_cannot_be_done_is_refused_and_says_why(api: httpx.AsyncClient) -> None:
    for method, path, sent, status, fields in REFUSED:
        headers, what = sent.get("headers", {}) | {"x-correlation-id": "ticket-7"}, (method, path, sent)
        answer = await api.request(method, path, **{**sent, "headers": headers})
        assert answer.status_code == status, (what, answer.text)
        assert answer.headers["Content-Type"] == "application/problem+json", what
        assert answer.headers["x-correlation-id"] == answer.json()["correlationId"] == "ticket-7", what
        assert [error["field"] for error in answer.json()["errors"]] == fields, what
        if status == 415:
            name, kinds = ("Accept-Patch", "application/json, application/merge-patch+json") if method == "PATCH" else (
                "Accept", "application/json")  # fmt: skip
            assert answer.headers[name] == kinds, what


async def test_what_was_read_is_edited_and_sent_back(api: httpx.AsyncClient) -> None:
    where, made = await created(api, note="soon")
    read = await api.get(where)
    edited = read.json() | {"title": "Water them", "note": None}
    replaced = await api.put(where, json=edited, headers={"If-Match": read.headers["ETag"]})
    assert (replaced.status_code, replaced.json()) == (
        200, edited | {"sequence": 3, "etag": replaced.headers["ETag"]}
    ), replaced.text  # fmt: skip
    again = await api.put(where, json=replaced.json())
    assert (again.json(), again.headers["ETag"]) == (replaced.json(), replaced.headers["ETag"])

    stale = await api.put(where, json=edited, headers={"If-Match": made.headers["ETag"]})
    assert stale.status_code == 412
    assert (await api.put(where, json=edited)).status_code == 412, "the version in the body is as good"
    unpinned = await api.put(where, json={name: edited[name] for name in edited if name != "etag"})
    assert [each["field"] for each in unpinned.json()["errors"]] == ["sequence"], "it is of an older version"
    for read_only in ({"id": UNKNOWN[-36:]}, {"createdAt": None}, {"owner": "Ada"}, {"doneAt": "2026"}):
        refused = await api.put(where, json=replaced.json() | read_only)
        assert (refused.status_code, [each["field"] for each in refused.json()["errors"]]) == (
            400, [*read_only]
        )  # fmt: skip
    short = await api.put(where, json={"title": "Water"})
    assert (short.json()["place"], short.json()["sequence"]) == (None, 5), "what is left out is gone"


ALLOWED = [
    ("PUT", "/tasks", "GET, HEAD, POST"),
    ("DELETE", "/tasks", "GET, HEAD, POST"),
    ("OPTIONS", "/tasks", "GET, HEAD, POST"),
    ("POST", UNKNOWN, "DELETE, GET, HEAD, PATCH, PUT"),
    ("PROPFIND", UNKNOWN, "DELETE, GET, HEAD, PATCH, PUT"),
    ("GET", f"{UNKNOWN}/finish", "POST"),
]


async def test_a_method_that_a_path_does_not_take_gets_those_that_it_takes(api: httpx.AsyncClient) -> None:
    for method, path, allowed in ALLOWED:
        answer = await api.request(method, path)
        assert (answer.status_code, answer.headers["Allow"]) == (405, allowed), (method, path)
        assert answer.headers["Content-Type"] == "application/problem+json", (method, path)


async def test_a_repeated_change_gets_the_first_answer(api: httpx.AsyncClient) -> None:
    where, made = await created(api)
    task, pinned = made.json()["id"], {"If-Match": made.headers["ETag"]}
    keys = [{"Idempotency-Key": uuid4().hex} for _ in range(4)]
    patched = [await api.patch(where, json={"note": "x"}, headers=keys[0] | pinned) for _ in range(2)]
    assert [each.status_code for each in patched] == [200, 200]
    assert patched[0].json() == patched[1].json()
    assert patched[0].headers["ETag"] == patched[1].headers["ETag"]
    assert [each.headers.get("Idempotency-Replayed") for each in patched] == [None, "true"]
    given = [await api.post(f"{where}/give", json={"name": "Ada"}, headers=keys[1]) for _ in range(2)]
    assert [each.json()["sequence"] for each in given] == [3, 3]
    late = await api.patch(
        where, json={"note": "x"}, headers=keys[0] | {"If-Match": given[0].headers["ETag"]}
    )
    assert (late.status_code, late.json()) == (200, {"id": task, "sequence": 2})
    assert "ETag" not in late.headers
    for other in (
        await api.patch(where, json={"note": "y"}, headers=keys[0]),
        await api.post(f"{where}/give", json={"name": "Ben"}, headers=keys[1]),
        await api.post(f"{where}/finish", headers=keys[1]),
        await api.delete(where, headers=keys[0]),
    ):
        assert (other.status_code, other.json()["title"]) == (422, "Idempotency key reused")
    finished = [await api.post(f"{where}/finish", headers=keys[2]) for _ in range(2)]
    assert [(each.status_code, each.json()["sequence"]) for each in finished] == [(200, 4)] * 2
    deleted = [await api.delete(where, headers=keys[3]) for _ in range(2)]
    assert [(each.status_code, each.content) for each in deleted] == [(204, b"")] * 2
    assert [each.headers.get("Idempotency-Replayed") for each in deleted] == [None, "true"]
    assert (await api.patch(where, json={"note": "x"}, headers=keys[0])).json() == late.json()
    assert (await api.post(f"{where}/finish", headers={"Idempotency-Key": "new"})).status_code == 404


async def test_a_key_belongs_to_the_caller_whom_the_program_knows(addresses: dict[str, str]) -> None:
    key = {"Idempotency-Key": uuid4().hex}
    async with httpx.AsyncClient(base_url=addresses["fastapi"], timeout=30, verify=_NO_TLS) as api:
        made = [
            (await api.post("/tasks", json=TASK, headers=key | {"X-User": user})).json()["id"]
            for user in ("ada", "grace", "ada")
        ]
        given = [
            await api.post(f"/tasks/{made[0]}/give", json={"name": user}, headers=key | {"X-User": user})
            for user in ("ada", "grace", "ada")
        ]
    assert made[0] == made[2] != made[1]
    assert [each.json()["sequence"] for each in given] == [2, 3, 2]


async def test_a_chunked_body_is_taken_where_the_server_puts_it_together(addresses: dict[str, str]) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"title": "in'
        yield b' two parts"}'

    for face in ("fastapi", "asgi"):
        async with httpx.AsyncClient(base_url=addresses[face], timeout=30, verify=_NO_TLS) as api:
            answer = await api.post("/tasks", content=chunks(), headers=JSON)
            assert (answer.status_code, answer.json()["title"]) == (201, "in two parts")


async def test_the_calls_stand_in_the_programs_own_description(addresses: dict[str, str]) -> None:
    async with httpx.AsyncClient(
        base_url=addresses["fastapi"].removesuffix("/api"), timeout=30, verify=_NO_TLS
    ) as api:
        paths = (await api.get("/openapi.json")).json()["paths"]
    assert {path: sorted(calls) for path, calls in paths.items()} == {
        "/api/tasks": ["get", "post"],
        "/api/tasks/{id}": ["delete", "get", "patch", "put"],
        "/api/tasks/{id}/give": ["post"],
        "/api/tasks/{id}/finish": ["post"],
    }
    create, patch = paths["/api/tasks"]["post"], paths["/api/tasks/{id}"]["patch"]
    assert create["operationId"].startswith("create_office_task")
    body = create["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["title"]
    assert body["properties"]["place"]["anyOf"][0]["properties"].keys() == {"room", "floor"}
    merged = patch["requestBody"]["content"]["application/merge-patch+json"]["schema"]
    assert "required" not in merged
    assert "required" not in merged["properties"]["place"]["anyOf"][0]
    assert {each["name"] for each in patch["parameters"]} == {
        "id", "If-Match", "If-None-Match", "Idempotency-Key", "traceparent", "tracestate"
    }  # fmt: skip
    refusals = {"400", "405", "409", "410", "413", "415", "422", "429", "500", "503"}
    assert {"201", *refusals} == create["responses"].keys()
    assert all(call["description"] for calls in paths.values() for call in calls.values())
    replacement = paths["/api/tasks/{id}"]["put"]["requestBody"]["content"]["application/json"]
    for sent in (replacement, patch["requestBody"]["content"]["application/json"]):
        assert {"id", "createdAt", "sequence", "etag"} < {*sent["schema"]["properties"]}, "as it was read"
        assert {*sent["example"]} == {"title", "note", "place"}


def given(answer: Any) -> Any:
    return answer["content"]["application/json"]["schema"]


async def test_every_answer_is_as_the_description_says(addresses: dict[str, str]) -> None:
    async with httpx.AsyncClient(
        base_url=addresses["fastapi"].removesuffix("/api"), timeout=30, verify=_NO_TLS
    ) as api:
        paths = (await api.get("/openapi.json")).json()["paths"]
        key = {"Idempotency-Key": uuid4().hex}
        made = await api.post("/api/tasks", json=TASK)
        one = f"/api/tasks/{made.json()['id']}"
        page = await api.get("/api/tasks")
        first = await api.patch(one, json={"note": "x"}, headers=key)
        await api.patch(one, json={"note": "y"})
        late = await api.patch(one, json={"note": "x"}, headers=key)
        wrong = await api.post("/api/tasks", json={})
    documented = {"/api/tasks": paths["/api/tasks"], "one": paths["/api/tasks/{id}"]}
    described = given(documented["one"]["get"]["responses"]["200"])
    assert described["required"] == [name for name in made.json() if name != "etag"]
    assert described["properties"]["createdAt"] == {"format": "date-time", "type": "string"}
    for answer, responses in (
        (made, documented["/api/tasks"]["post"]["responses"]["201"]),
        (page, documented["/api/tasks"]["get"]["responses"]["200"]),
        (first, documented["one"]["patch"]["responses"]["200"]),
        (late, documented["one"]["put"]["responses"]["200"]),
    ):
        jsonschema.validate(answer.json(), given(responses))
        assert {*responses["headers"]} >= {
            name
            for name in ("ETag", "Last-Modified", "Location", "Idempotency-Replayed")
            if name in answer.headers
        }
    problem = documented["/api/tasks"]["post"]["responses"]["400"]["content"]["application/problem+json"][
        "schema"
    ]
    jsonschema.validate(wrong.json(), problem)
    assert {*problem["required"]} == {*wrong.json()}
    assert "content" not in documented["one"]["delete"]["responses"]["204"]
