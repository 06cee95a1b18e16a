"""The HTTP API over real sockets: its answers, and that bad input writes nothing."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.e2e.conftest import Stack
from tests.support.contacts import DETAILS_JSON
from tests.support.emulators import Gap


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


async def test_a_patch_that_changes_nothing_keeps_the_version(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    async with http.get(url) as answer:
        before = answer.headers["ETag"]
    async with http.patch(url, json={"email": contact["email"]}) as answer:
        assert (answer.status, answer.headers["ETag"]) == (200, before)


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_a_repeated_creation_is_answered_as_the_first_time(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    url, headers = f"{shared_stack.url}/contacts", {"Idempotency-Key": '"e2e-4711"'}
    async with http.post(url, json=DETAILS_JSON, headers=headers) as answer:
        assert (answer.status, answer.headers.get("Idempotency-Replayed")) == (201, None)
        first, location, etag = await answer.json(), answer.headers["Location"], answer.headers["ETag"]
    async with http.post(url, json=DETAILS_JSON, headers=headers) as answer:
        assert (answer.status, answer.headers["Idempotency-Replayed"]) == (201, "true")
        assert (await answer.json(), answer.headers["Location"], answer.headers["ETag"]) == (
            first,
            location,
            etag,
        )
    async with http.post(url, json=DETAILS_JSON | {"email": "x@y.org"}, headers=headers) as answer:
        await assert_problem(answer, 422, None)
    assert await shared_stack.sequences(first["id"], 1) == [1]
    assert await shared_stack.topic.is_empty(first["id"])


async def test_a_list_goes_through_every_contact_once(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    created = {(await shared_stack.create(http))["id"] for _ in range(5)}
    seen: list[str] = []
    parameters = {"pageSize": "2"}
    while True:
        async with http.get(f"{shared_stack.url}/contacts", params=parameters) as answer:
            assert answer.status == 200
            page = await answer.json()
        assert len(page["items"]) <= 2
        seen += [item["id"] for item in page["items"]]
        if page["continuationToken"] is None:
            break
        parameters["continuationToken"] = page["continuationToken"]
    assert len(seen) == len(set(seen))
    assert created <= set(seen)


NOBODY = "b5e2e7aa-4982-4735-9422-c39a7c4af5c2"
"""The id of a contact that nobody made."""


def contact(**fields: Any) -> str:
    return json.dumps(DETAILS_JSON | fields)


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


async def test_a_missing_path_or_contact_is_a_problem_document(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    for method, path, status in MISSING:
        url = URL(f"{shared_stack.url}/{path}", encoded=True)
        async with http.request(method, url, json=None if method == "TRACE" else {}) as answer:
            await assert_problem(answer, status, None)


async def test_a_body_that_is_longer_by_far_is_refused_by_the_host_before_it_has_come(
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


async def test_browsers_are_told_to_come_over_tls_alone(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    behind_tls = {"Host": "contacts.example", "X-Forwarded-Proto": "https"}
    for path, status in (("operations", 200), (f"contacts/{NOBODY}", 404), ("contacts", 200)):
        async with http.get(f"{shared_stack.url}/{path}", headers=behind_tls) as answer:
            assert answer.status == status
            assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


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
