"""Every call of docs/use/openapi.json, made of the running app, is answered as it tells, and so are mistakes."""

import gzip
import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import aiohttp

from tests.e2e.conftest import Stack
from tests.support.contacts import DETAILS_JSON
from tests.support.openapi import document, untold

NOBODY = str(uuid4())


class Caller:
    """Makes calls by their path in the document, and notes each that is answered as the document does not tell."""

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


async def test_every_call_is_answered_as_the_document_tells(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
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
    told = {f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods}
    assert call.made == told


async def test_the_document_comes_packed_through_the_host(shared_stack: Stack) -> None:
    url, gzipped = f"{shared_stack.url}/openapi.json", {"Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(auto_decompress=False) as http:
        async with http.get(url, headers={"Accept-Encoding": "identity"}) as answer:
            plain, etag = await answer.read(), answer.headers["ETag"]
        async with http.get(url, headers=gzipped) as answer:
            sent, told = await answer.read(), answer.headers
        async with http.get(url, headers=gzipped | {"If-None-Match": etag}) as answer:
            assert (answer.status, answer.headers["Vary"]) == (304, "Accept-Encoding")
    assert (told["Content-Encoding"], told["ETag"], told["Content-Length"]) == ("gzip", etag, str(len(sent)))
    assert gzip.decompress(sent) == plain
    assert len(sent) < len(plain) / 5
