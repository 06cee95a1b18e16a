"""What may stand in a search of the directory, and what an entry looks like."""

import json
from datetime import UTC, datetime

import pytest

from application.directory import DirectoryEntry, Field, Search
from cosmos_outbox.http.message import Request
from cosmos_outbox.http.problems import InvalidRequest
from cosmos_outbox.inbox.entry import Listed, ListedPage
from infra import directory_http as directory


def request(query: str) -> Request:
    return Request("GET", f"http://localhost/api/directory?{query}")


@pytest.mark.parametrize(
    ("query", "search"),
    [
        ("", Search({})),
        ("name=jo&sort=city", Search({Field.NAME: "jo"}, "city")),
        ("sort=-changed", Search({}, "-changed")),
        (
            "city=Palo%20Alto&country=US&pageSize=5&code=key",
            Search({Field.CITY: "Palo Alto", Field.COUNTRY: "US"}),
        ),
        ("email=a%2Bb@c.org&company=%C3%85", Search({Field.EMAIL: "a+b@c.org", Field.COMPANY: "Å"})),
    ],
)
def test_a_search_is_read_from_the_query(query: str, search: Search) -> None:
    assert directory.search(request(query)) == search


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("nmae=jo", ["nmae"]),
        ("name=", ["name"]),
        ("city=%20", ["city"]),
        (f"company={'x' * 251}", ["company"]),
        ("sort=lastName", ["sort"]),
        ("sort=--name", ["sort"]),
        ("sort=-", ["sort"]),
        ("city=a&city=b", ["city"]),
        ("written=7:1&sort=x", ["sort"]),
        ("sort=&name=%09&x=1", ["x", "name", "sort"]),
    ],
)
def test_a_search_that_cannot_be_is_refused_with_every_field(query: str, fields: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        directory.search(request(query))
    assert [error.field for error in caught.value.errors] == fields


def test_an_entry_says_how_far_it_can_be_trusted() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    entry = DirectoryEntry(first_name="J", last_name="D", email="j@d.org", company="Contoso", created_at=noon)
    page = ListedPage([Listed("7", entry, 3, noon, 0.25, noon)], "more")
    assert json.loads(directory.listed(page, True, "/api/directory?continuationToken=more").body) == {
        "items": [
            {
                "id": "7", "firstName": "J", "lastName": "D", "email": "j@d.org", "company": "Contoso", "city": None,
                "country": None, "createdAt": "2026-03-01T12:00:00Z", "modifiedAt": None, "sequence": 3,
                "appliedAt": "2026-03-01T12:00:00+00:00", "lateSeconds": 0.25,
                "blockedSince": "2026-03-01T12:00:00+00:00",
            }
        ],
        "continuationToken": "more", "nextLink": "/api/directory?continuationToken=more", "behind": True,
    }  # fmt: skip
