"""What a list is asked for in the query is checked by name, and each page has the address of the next."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from cosmos_outbox.http import asgi_app
from cosmos_outbox.testing import in_memory
from infra.bootstrap import service as contact_service
from infra.contacts_http import contacts
from tests.support.contacts import DETAILS_JSON


@pytest.fixture
async def api() -> AsyncIterator[httpx.AsyncClient]:
    async with in_memory(contact_service):
        transport = httpx.ASGITransport(asgi_app(contact_service, [contacts]))
        async with httpx.AsyncClient(transport=transport, base_url="http://contacts") as client:
            yield client


async def created(api: httpx.AsyncClient, email: str = "ann@example.com") -> dict[str, Any]:
    answer = await api.post("/contacts", json=DETAILS_JSON | {"email": email})
    assert answer.status_code == 201, answer.text
    contact: dict[str, Any] = answer.json()
    return contact


async def test_a_list_is_of_those_that_are_asked_for(api: httpx.AsyncClient) -> None:
    ann, bob = await created(api), await created(api, "bob@example.com")
    now = datetime.now(UTC)
    for query, wanted in (
        ("email=bob@example.com", [bob]),
        ("email=bob@EXAMPLE.com", [bob]),  # the spelling in which the domain is stored
        ("email=BOB@example.com", []),
        (f"ids={ann['id']}", [ann]),
        (f"ids={','.join([ann['id']] * 100)}", [ann]),
        (f"ids={ann['id'].upper()},{bob['id']}&email=ann@example.com", [ann]),
        (
            f"changedSince={(now - timedelta(minutes=1)).strftime('%Y-%m-%dT%H:%M:%SZ')}&ids={bob['id']}",
            [bob],
        ),
        ("changedSince=1970-01-01T00:00:00%2B02:00", [ann, bob]),
        (f"changedSince={(now + timedelta(minutes=1)).isoformat().replace('+', '%2B')}", []),
        ("changedSince=9999-12-31T23:59:59-12:00", []),
    ):
        answer = await api.get(f"/contacts?{query}")
        assert answer.json()["items"] == wanted, query


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("sort=email", ["sort"]),
        ("sort=", ["sort"]),
        ("sort=created%20DESC", ["sort"]),
        ("ids=", ["ids"]),
        ("ids=7", ["ids"]),
        (f"ids={','.join(['0f8fad5b-d9cb-469f-a165-70867728950e'] * 101)}", ["ids"]),
        ("changedSince=", ["changedSince"]),
        ("changedSince=2026-03-01", ["changedSince"]),
        ("changedSince=2026-03-01T12:00:00", ["changedSince"]),
        ("changedSince=2026-13-01T12:00:00Z", ["changedSince"]),
        ("email=bob", ["email"]),
        ("email=", ["email"]),
        ("name=Ann", ["name"]),
        ("sort=x&ids=x&changedSince=x&email=x", ["sort", "email", "ids", "changedSince"]),
        ("sort=created&sort=changed", ["sort"]),
        ("continuationToken=x", ["continuationToken"]),
    ],
)
async def test_what_no_list_can_be_asked_for_is_refused_by_name(
    api: httpx.AsyncClient, query: str, fields: list[str]
) -> None:
    answer = await api.get(f"/contacts?{query}")
    assert (answer.status_code, [each["field"] for each in answer.json()["errors"]]) == (400, fields)
