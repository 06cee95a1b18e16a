"""What a list is asked for in the query is checked by name, and each page tells the address of the next."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from cosmos_outbox import Origin, Service
from cosmos_outbox.http import Resource, asgi_app
from cosmos_outbox.testing import in_memory
from infra.bootstrap import service as contact_service
from infra.contacts_http import contacts
from tests.support.contacts import DETAILS_JSON
from tests.support.tasks import Details, Owner, Task, service


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


async def walked(api: httpx.AsyncClient, link: str | None) -> list[str]:
    """The ids on all pages, by the address of each."""
    found: list[str] = []
    while link is not None:
        answer = await api.get(link)
        assert answer.status_code == 200, answer.text
        found += [item["id"] for item in answer.json()["items"]]
        link = answer.json()["nextLink"]
    return found


@pytest.mark.parametrize("of_the_host", ["code=secret&clientId=me", "Code=secret&CLIENTID=me"])
async def test_the_address_of_the_next_page_asks_for_the_same_and_holds_no_key(
    api: httpx.AsyncClient, of_the_host: str
) -> None:
    """The host takes its key from a parameter in whatever case."""
    made = [(await created(api))["id"] for _ in range(5)]
    await created(api, "bob@example.com")
    query = "pageSize=2&sort=-created&email=ann@example.com&" + of_the_host
    first = (await api.get(f"/contacts?{query}")).json()
    link = urlsplit(first["nextLink"])
    assert (link.scheme, link.netloc, link.path) == ("", "", "/contacts")
    assert parse_qs(link.query) == {
        "pageSize": ["2"], "sort": ["-created"], "email": ["ann@example.com"],
        "continuationToken": [first["continuationToken"]],
    }  # fmt: skip
    assert {*await walked(api, f"/contacts?{query}")} == {*made}
    assert len(await walked(api, f"/contacts?{query}")) == 5
    last = (await api.get("/contacts")).json()
    assert (last["nextLink"], last["continuationToken"]) == (None, None)


async def test_the_first_page_tells_since_when_to_ask_for_what_changes(api: httpx.AsyncClient) -> None:
    made, began = [await created(api) for _ in range(3)], datetime.now(UTC)
    first = (await api.get("/contacts?pageSize=2")).json()
    as_of = datetime.fromisoformat(first["asOf"])
    assert timedelta(seconds=55) < began - as_of < timedelta(seconds=65)
    assert (await api.get(first["nextLink"])).json()["asOf"] is None
    again = (await api.get(f"/contacts?changedSince={first['asOf']}")).json()
    assert {item["id"] for item in again["items"]} == {each["id"] for each in made}


async def test_a_list_goes_both_ways(api: httpx.AsyncClient) -> None:
    for _ in range(5):
        await created(api)
    for sort in ("created", "changed"):
        there, back = [await walked(api, f"/contacts?pageSize=2&sort={sign}{sort}") for sign in ("", "-")]
        assert there == back[::-1]
        assert len({*there}) == 5
    assert await walked(api, "/contacts") == await walked(api, "/contacts?sort=created")


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


async def test_what_changed_at_the_very_second_that_is_asked_for_is_on_the_list() -> None:
    """The store keeps whole seconds: it may have changed later in this one."""
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    async with in_memory(contact_service, now=at):
        transport = httpx.ASGITransport(asgi_app(contact_service, [contacts]))
        async with httpx.AsyncClient(transport=transport, base_url="http://contacts") as client:
            made = await created(client)
            for since, listed in (("12:00:00", [made]), ("12:00:00.900", [made]), ("12:00:01", [])):
                page = await client.get(f"/contacts?changedSince=2026-03-01T{since}Z")
                assert page.json()["items"] == listed, since


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


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [
        ("name=Ann", "unknown", "is not one of "),
        ("name=Ann&name=Bob", "unknown", "is not one of "),
        ("ids=x&ids=x", "repeated", "is given twice"),
    ],
)
async def test_an_unknown_parameter_and_a_repeated_one_are_told_apart(
    api: httpx.AsyncClient, query: str, code: str, reason: str
) -> None:
    [error, *_] = (await api.get(f"/contacts?{query}")).json()["errors"]
    assert error["code"] == code
    assert error["reason"].startswith(reason)


def test_a_property_that_the_state_has_not_cannot_be_found_by() -> None:
    with pytest.raises(TypeError, match="found_by names colour, and the state has not"):
        type("Coloured", (Task,), {"found_by": ["colour"]})


async def test_a_field_without_a_rule_of_its_own_finds_too() -> None:
    class FoundByOwner(Task):
        found_by: ClassVar[Sequence[str]] = ("owner",)

    mine: Service = Service("owners", [FoundByOwner], service.names)
    resource: Resource[FoundByOwner, Details] = Resource("tasks", FoundByOwner)
    async with in_memory(mine):
        for owner in ("Ann", "Bob"):
            task = FoundByOwner.create(Details(title="Water"), at=datetime(2026, 3, 1, tzinfo=UTC))
            task.give(Owner(name=owner), at=datetime(2026, 3, 1, tzinfo=UTC))
            await mine().aggregates.create(task, Origin("c"))
        transport = httpx.ASGITransport(asgi_app(mine, [resource]))
        async with httpx.AsyncClient(transport=transport, base_url="http://tasks") as client:
            page = (await client.get("/tasks?owner=Ann")).json()
    assert [each["owner"] for each in page["items"]] == ["Ann"]
