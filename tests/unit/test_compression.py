"""What is read and is large goes as gzip to who takes it, over every edge; versions and conditions stay as they are."""

import gzip
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from cosmos_outbox.http import asgi_app, fastapi_router
from cosmos_outbox.http.compression import LEAST_BYTES, packed, takes_gzip
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.kernel import clock
from cosmos_outbox.testing import call, in_memory
from function_app import app as contacts
from tests.support.tasks import service, tasks

LARGE = b"a" * LEAST_BYTES


def asking(accepted: str | None = "gzip", method: str = "GET") -> Request:
    return Request(method, "http://x/y", {} if accepted is None else {"Accept-Encoding": accepted})


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        (None, False),
        ("", False),
        ("gzip", True),
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, GZIP;q=0.8, *;q=0.1", True),
        ("*", True),
        ("*;q=0", False),
        ("*, gzip;q=0", False),
        ("deflate, br", False),
        ("identity, gzip;q=0.5", False),
        ("identity, gzip", True),
        ("identity;q=0.5, gzip", True),
        ("identity;q=0, gzip;q=0.001", True),
        ("gzip;q=0.000", False),
        ("gzip;q=two", False),
        ("gzip;level=9", False),
        ("xgzip", False),
    ],
)
def test_a_caller_takes_what_its_weights_say(accepted: str | None, takes: bool) -> None:
    assert takes_gzip(asking(accepted)) is takes


@pytest.mark.parametrize(
    ("method", "answer", "is_packed", "varies"),
    [
        ("GET", Answer(200, LARGE, media_type="application/json"), True, "Accept-Encoding"),
        ("HEAD", Answer(200, LARGE, media_type="application/problem+json"), True, "Accept-Encoding"),
        ("GET", Answer(404, LARGE, media_type="text/html"), True, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, {"ETag": 'W/"1"'}), True, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, {"vary": "Origin"}), True, "Origin, Accept-Encoding"),
        ("GET", Answer(200, LARGE[1:]), False, "Accept-Encoding"),
        ("GET", Answer(304, b"", {"ETag": 'W/"1"'}), False, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, media_type="image/png"), False, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, {"ETag": '"1"'}), False, None),
        ("GET", Answer(304, b"", {"ETag": '"1"'}), False, None),
        ("GET", Answer(200, LARGE, {"content-encoding": "br"}), False, None),
    ],
)
def test_what_is_large_and_has_no_strong_version_is_packed(
    method: str, answer: Answer, is_packed: bool, varies: str | None
) -> None:
    given = packed(asking(method=method), answer)
    assert (given.headers.get("Content-Encoding") == "gzip") is is_packed
    assert given.headers.get("Vary") == varies
    assert (gzip.decompress(given.body) if is_packed else given.body) == answer.body
    assert len(given.body) < len(answer.body) or not is_packed
    plain = packed(asking(None, method), answer)
    assert (plain.body, plain.headers.get("Vary")) == (answer.body, varies)


@pytest.mark.parametrize(
    ("site", "cookie", "is_packed"),
    [
        ("cross-site", True, False),
        ("cross-site", False, True),
        ("same-origin", True, True),
        (None, True, True),
    ],
)
def test_whom_another_sites_page_makes_ask_with_a_cookie_the_length_tells_nothing(
    site: str | None, cookie: bool, is_packed: bool
) -> None:
    sent = {
        "accept-encoding": "gzip",
        **({"sec-fetch-site": site} if site else {}),
        **({"cookie": "a=b"} if cookie else {}),
    }
    given = packed(Request("GET", "http://x/y", sent), Answer(200, LARGE))
    assert ("Content-Encoding" in given.headers) is is_packed
    assert given.headers["Vary"] == "Accept-Encoding"


def routed(app: Any) -> FastAPI:
    made = FastAPI()
    made.include_router(app)
    return made


@pytest.mark.parametrize("edge", ["asgi", "fastapi"])
async def test_a_list_is_packed_and_a_change_goes_on_from_what_was_read(edge: str) -> None:
    app: Any = asgi_app(service, [tasks]) if edge == "asgi" else routed(fastapi_router(service, [tasks]))
    now = clock.utc_now()  # which a list tells: three of them are the same at one moment alone
    with clock.using(replace(clock.SYSTEM, now=lambda: now)):
        await _reads_packed_and_goes_on(app)


async def _reads_packed_and_goes_on(app: Any) -> None:
    async with (
        in_memory(service),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x") as api,
    ):
        gzipped = {"Accept-Encoding": "gzip"}
        for number in range(10):
            made = await api.post(
                "/tasks", json={"title": f"Task {number}", "note": "a note " * 300}, headers=gzipped
            )
        found = await api.get("/tasks", headers=gzipped)
        plain = await api.get("/tasks", headers={"Accept-Encoding": "identity"})
        assert (found.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
        assert found.json() == plain.json()
        assert int(found.headers["content-length"]) < int(plain.headers["content-length"]) / 5
        head = await api.head("/tasks", headers=gzipped)
        assert [head.headers[name] for name in ("content-encoding", "content-length", "vary")] == [
            found.headers[name] for name in ("content-encoding", "content-length", "vary")
        ]
        one = await api.get(made.headers["Location"].removeprefix("/api"), headers=gzipped)
        assert "vary" not in made.headers
        assert ("content-encoding" in one.headers, one.headers["etag"]) == (False, made.headers["etag"])
        path = f"/tasks/{one.json()['id']}"
        changed = await api.patch(path, json={"title": "Done"}, headers={"If-Match": one.headers["etag"]})
        assert changed.status_code == 200


async def test_a_function_apps_document_has_one_version_packed_or_not() -> None:
    gzipped = {"Accept-Encoding": "gzip"}
    found = await call(contacts, "GET", "/api/openapi.json", headers=gzipped)
    plain = await call(contacts, "GET", "/api/openapi.json")
    assert json.loads(gzip.decompress(found.get_body())) == json.loads(plain.get_body())
    assert found.headers["ETag"] == plain.headers["ETag"]
    for headers in ({}, gzipped):
        known = headers | {"If-None-Match": found.headers["ETag"]}
        again = await call(contacts, "GET", "/api/openapi.json", headers=known)
        assert (again.status_code, again.get_body(), again.headers["Vary"]) == (304, b"", "Accept-Encoding")
        assert again.headers["ETag"] == found.headers["ETag"]
