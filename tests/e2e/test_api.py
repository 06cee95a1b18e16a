"""The HTTP API over real sockets: its answers, and that bad input writes nothing."""

import asyncio
import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from tests.e2e.conftest import Stack
from tests.support.contacts import DETAILS_JSON
from tests.support.emulators import Gap
from tests.support.openapi import document, untold
from tests.support.paths import ROOT
from tests.typescript.test_types import program


@pytest.mark.known_gap(Gap.NO_304)
async def test_a_contact_from_its_creation_to_its_end(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    url = f"{shared_stack.url}/contacts"
    async with http.post(url, json=DETAILS_JSON) as answer:
        assert answer.status == 201
        contact = await answer.json()
        location, first = answer.headers["Location"], answer.headers["ETag"]
    assert location == f"/api/contacts/{contact['id']}"
    assert contact["name"] == DETAILS_JSON["name"]
    assert contact["modifiedAt"] is None

    async with http.get(shared_stack.functions.address.rstrip("/") + location) as answer:
        assert answer.status == 200
        assert answer.headers["ETag"] == first
        assert await answer.json() == contact
    async with http.get(f"{url}/{contact['id']}", headers={"If-None-Match": first}) as answer:
        assert answer.status == 304

    patch = {"name": {"firstName": "Jane"}, "company": {"companyName": "Fabrikam"}}
    async with http.patch(f"{url}/{contact['id']}", json=patch, headers={"If-Match": first}) as answer:
        assert answer.status == 200
        second = answer.headers["ETag"]
        patched = await answer.json()
    assert second != first
    assert patched["name"] == {"firstName": "Jane", "lastName": "Doe"}
    assert patched["company"]["companyName"] == "Fabrikam"
    assert patched["company"]["city"] == "Oslo"

    async with http.patch(
        f"{url}/{contact['id']}", json={"email": "x@y.org"}, headers={"If-Match": first}
    ) as answer:
        assert answer.status == 412
        assert answer.content_type == "application/problem+json"
    async with http.delete(f"{url}/{contact['id']}", headers={"If-Match": second}) as answer:
        assert answer.status == 204
    for call in (http.get, http.delete):
        async with call(f"{url}/{contact['id']}") as answer:
            assert answer.status == 404
    async with http.patch(f"{url}/{contact['id']}", json={}) as answer:
        assert answer.status == 404


NOBODY = "b5e2e7aa-4982-4735-9422-c39a7c4af5c2"
"""The id of a contact that nobody made."""


MISSING = [
    ("GET", "contacts/1", 404),
    ("PATCH", "contacts/1", 404),
    ("DELETE", f"contacts/{NOBODY}", 404),
    ("GET", f"contacts/{NOBODY}", 404),
    ("GET", "people", 404),
    ("GET", f"contacts/{NOBODY}/events", 404),
    ("POST", f"contacts/{NOBODY}", 405),
    ("DELETE", "contacts", 405),
    ("TRACE", "contacts", 405),
    ("TRACE", "people", 404),
    ("GET", "contacts/a%0Ab", 404),
    ("GET", "a%0Ab", 404),
    ("DELETE", "a%0Ab/c", 404),
]


async def test_a_far_too_long_body_is_refused_by_the_host_before_it_arrives(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    typed = {"Content-Type": "application/json"}
    async with http.post(f"{shared_stack.url}/contacts", data=b" " * 131_072, headers=typed) as answer:
        await assert_problem(answer, 413, "body")
    reader, writer = await asyncio.open_connection("127.0.0.1", shared_stack.functions.port)
    writer.write(b"POST /api/contacts HTTP/1.1\r\nHost: x\r\nContent-Length: 131073\r\n\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    writer.close()
    await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"Content-Length: 0\r\n" in head


async def test_browsers_are_sent_to_tls_alone(shared_stack: Stack, http: aiohttp.ClientSession) -> None:
    behind_tls = {"Host": "contacts.example", "X-Forwarded-Proto": "https"}
    for path, status in (("operations", 200), (f"contacts/{NOBODY}", 404), ("contacts", 200)):
        async with http.get(f"{shared_stack.url}/{path}", headers=behind_tls) as answer:
            assert answer.status == status
            assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_health_answers(shared_stack: Stack, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{shared_stack.url}/health") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "healthy"})


async def assert_problem(answer: aiohttp.ClientResponse, status: int, field: str | None) -> None:
    assert answer.status == status, await answer.text()
    assert answer.content_type == "application/problem+json"
    problem = await answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    if field is not None:
        assert [(error["field"], bool(error["reason"])) for error in problem["errors"]] == [(field, True)]


class Caller:
    """Makes calls by their path in the document, and notes each answer that the document does not describe."""

    def __init__(self, stack: Stack, http: aiohttp.ClientSession) -> None:
        self._address, self._http = stack.functions.address.rstrip("/"), http
        self.wrong: list[str] = []
        self.made: set[str] = set()

    async def __call__(
        self, call: str, status: int, values: Mapping[str, str] | None = None, query: str = "", **given: Any
    ) -> Mapping[str, str]:
        """Call ``METHOD /path``; ``values`` are those in the path. The answer's headers."""
        method, path = call.split()
        url = re.sub(r"\{(\w+)\}", lambda name: (values or {})[name[1]], path)
        async with self._http.request(method, f"{self._address}{url}{query}", **given) as answer:
            body = await answer.read()
            headers = answer.headers
        self.made.add(call)
        assert answer.status == status, (call, body)
        self.wrong += [f"{call} {status}: {each}" for each in untold(method, path, status, headers, body)]
        return headers


async def test_every_call_is_answered_as_documented(shared_stack: Stack, http: aiohttp.ClientSession) -> None:
    call = Caller(shared_stack, http)
    contacts, contact = "/api/contacts", "/api/contacts/{id}"

    key = {"Idempotency-Key": f'"{uuid4()}"'}
    made = await call(f"POST {contacts}", 201, json=DETAILS_JSON, headers=key)
    assert "Location" in made
    await call(f"POST {contacts}", 201, json=DETAILS_JSON, headers=key)
    await call(f"POST {contacts}", 422, json=DETAILS_JSON | {"description": "x"}, headers=key)
    await call(f"POST {contacts}", 400, json={"nmae": 1})
    await call(f"POST {contacts}", 413, data=b" " * 70_000, headers={"Content-Type": "application/json"})
    await call(f"POST {contacts}", 415, data=b"x", headers={"Content-Type": "text/plain"})
    await call(f"GET {contacts}", 200, query="?pageSize=1")
    await call(f"GET {contacts}", 400, query="?pagesize=1")
    mine = {"id": made["Location"].rpartition("/")[2]}
    await call(f"GET {contact}", 200, mine)
    await call(f"GET {contact}", 304, mine, headers={"If-None-Match": made["ETag"]})
    await call(f"GET {contact}", 404, {"id": NOBODY})
    await call(f"PATCH {contact}", 200, mine, json={"company": {"city": "Bergen"}})
    await call(f"PATCH {contact}", 412, mine, json={"email": "x@y.org"}, headers={"If-Match": made["ETag"]})
    await call(f"PATCH {contact}", 400, mine, json={"name": None})
    await call(f"PATCH {contact}", 200, mine, json={"email": "x@y.org"}, headers=key)
    await call(f"PATCH {contact}", 200, mine, json={"email": "y@y.org"})
    await call(f"PATCH {contact}", 200, mine, json={"email": "x@y.org"}, headers=key)
    await call(f"PATCH {contact}", 422, mine, json={"email": "z@y.org"}, headers=key)
    await call(f"GET {contact}", 200, mine)
    await call("GET /api/directory", 200)
    await call("GET /api/directory", 400, query="?sort=age")
    await call(f"PATCH {contact}", 415, mine, data=b"x", headers={"Content-Type": "text/plain"})
    await call(f"PATCH {contact}", 415, mine, json={}, headers={"Content-Encoding": "gzip"})
    changed_time = DETAILS_JSON | {"createdAt": "2026-03-01T12:00:00Z"}
    for status, body, headers in (
        (200, DETAILS_JSON, {}),
        (400, changed_time, {}),
        (412, DETAILS_JSON, {"If-Match": made["ETag"]}),
    ):
        await call(f"PUT {contact}", status, mine, json=body, headers=headers)
    await call(f"DELETE {contact}", 400, mine, headers={"If-Match": "x"})
    for _ in range(2):
        await call(f"DELETE {contact}", 204, mine, headers={"Idempotency-Key": "deletes"})
    await call(f"DELETE {contact}", 404, mine)
    await call(f"POST {contacts}", 410, json=DETAILS_JSON, headers=key)

    assert call.wrong == []
    documented = {
        f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods
    }
    assert call.made == documented


async def test_the_document_comes_packed_through_the_host(shared_stack: Stack) -> None:
    url, gzipped = f"{shared_stack.url}/openapi.json", {"Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(auto_decompress=False) as http:
        async with http.get(url, headers={"Accept-Encoding": "identity"}) as answer:
            plain, etag = await answer.read(), answer.headers["ETag"]
        async with http.get(url, headers=gzipped) as answer:
            sent, documented = await answer.read(), answer.headers
        async with http.get(url, headers=gzipped | {"If-None-Match": etag}) as answer:
            assert (answer.status, answer.headers["Vary"]) == (304, "Accept-Encoding")
    assert (documented["Content-Encoding"], documented["ETag"], documented["Content-Length"]) == (
        "gzip",
        etag,
        str(len(sent)),
    )
    assert gzip.decompress(sent) == plain
    assert len(sent) < len(plain) / 5


SETTINGS_MD = (ROOT / "docs" / "use" / "settings.md").read_text()


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
def test_the_readmes_curl_lines_work_when_pasted(shared_stack: Stack) -> None:
    first, then = re.findall(r"```sh\n(curl .*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    made = _pasted(shared_stack, first)
    [contact_id] = re.findall(r"^Location: /api/contacts/(\S+)", made, flags=re.MULTILINE | re.IGNORECASE)
    changed = _pasted(shared_stack, f"id={contact_id}\n{then}")

    assert re.findall(r"HTTP/1.1 (\d+) ", made + changed) == ["201", "200", "204"]
    assert '"firstName": "Jane"' in changed
    assert '"city": "Bergen"' in changed


def _pasted(stack: Stack, script: str) -> str:
    script = script.replace("http://127.0.0.1:7071", stack.functions.address.rstrip("/"))
    return subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=30, check=True
    ).stdout


def test_every_setting_is_documented_and_in_the_sample() -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
    read = {
        name
        for text in sources()
        for name in re.findall(r'"((?:COSMOS|SERVICEBUS|EVENT|IDEMPOTENCY)[A-Z_]*)"', text)
    }
    assert {"COSMOS", "SERVICEBUS_TOPIC", "EVENT_TTL_SECONDS"} <= read
    for name in read:
        assert name in {*sample, "SERVICEBUS_QUEUE"}, "which takes the topic's place"
        assert f"`{name}`" in SETTINGS_MD


def sources() -> list[str]:
    return [
        path.read_text()
        for path in (ROOT / "infra" / "bootstrap.py", *(ROOT / "cosmos_outbox" / "settings").glob("*.py"))
    ]


CLIENT = ROOT / "docs" / "use" / "client.js"


@pytest.mark.long  # a program of Node.js
async def test_the_client_of_the_page_repeats_merges_and_turns_pages(
    shared_stack: Stack, tmp_path: Path
) -> None:
    """docs/use/client.js, in Node.js; ``api_client.mjs`` loses and refuses answers on their way."""
    client = CLIENT.read_text()
    address, shown = shared_stack.functions.address.rstrip("/"), "http://127.0.0.1:7071"
    assert client.count(shown) == 1
    own_wait = "const setTimeout = (...given) => globalThis.wait(...given);\n"
    (tmp_path / "client.mjs").write_text(own_wait + client.replace(shown, address))
    shutil.copy(Path(__file__).with_name("api_client.mjs"), tmp_path)
    process = await asyncio.create_subprocess_exec(
        program("node"), tmp_path / "api_client.mjs", address,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, failed = await process.communicate()
    assert process.returncode == 0, failed.decode()
    assert json.loads(out) == {
        "waits": [1000, 7000],
        "keys": 1,
        "again": True,
        "contacts": 1,
        "merged": ["a rival's", "Contoso", 3, []],
        "conflict": ["a rival's", "once@example.org", ["description"]],
        "refused": [400, "email"],
        "given_up": "fetch failed",
        "paged": [3, True, True],
        "changed": [True, True, "after the look", True],
    }
