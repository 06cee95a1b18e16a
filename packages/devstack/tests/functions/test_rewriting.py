"""Expectations are what the Cosmos DB extension 4.8.2 was seen to do, or what the sources of Newtonsoft.Json 13 say."""

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devstack.functions.rewriting import UnreadableText, rewritten

UTC = ZoneInfo("UTC")


@pytest.mark.parametrize(
    ("text", "arrives"),
    [
        # Seen.
        ("2024-05-01T10:00:00.000+02:00", "2024-05-01T08:00:00+00:00"),
        ("/Date(1714557600000)/", "2024-05-01T10:00:00Z"),
        ("2024-05-01T10:00:00.072350Z", "2024-05-01T10:00:00.07235Z"),
        ("2024-05-01T10:00:00.07235480Z", "2024-05-01T10:00:00.07235480Z"),
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:00Z", "2024-05-01T10:00Z"),
        # Offsets and fractions.
        ("2024-05-01T10:00:00", "2024-05-01T10:00:00"),
        ("2024-05-01T10:00:00.1234567", "2024-05-01T10:00:00.1234567"),
        ("2024-05-01T10:00:00.000", "2024-05-01T10:00:00"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
        ("2024-05-01T10:00:00z", "2024-05-01T10:00:00Z"),
        ("2024-05-01T10:00:00+00:00", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01T10:00:00-0130", "2024-05-01T11:30:00+00:00"),
        ("2024-05-01T10:00:00+02", "2024-05-01T08:00:00+00:00"),
        ("2024-05-01T10:00:00+99:99", "2024-04-27T05:21:00+00:00"),
        ("2024-02-29T24:00:00Z", "2024-03-01T00:00:00Z"),
        ("0001-01-01T00:00:00+02:00", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:00:00-02:00", "9999-12-31T23:59:59.9999999+00:00"),
        # What the parser takes too, by its source.
        ("2024-05-01T10:00:00+02:", "2024-05-01T08:00:00+00:00"),
        ("2024-05-01T10:00:00:30", "2024-05-01T10:00:00"),
        ("2024-05-01T10:00:0012", "2024-05-01T10:00:00"),
        ("2024-05-01T10:00:00.123456789", "2024-05-01T10:00:00.1234567"),
        # Not dates.
        ("2024-05-01T10:00:00.", "2024-05-01T10:00:00."),
        ("2024-05-01T10:00:00.12345678", "2024-05-01T10:00:00.12345678"),
        ("2024-05-01T10:00:00.123456789Z", "2024-05-01T10:00:00.123456789Z"),
        ("2024-05-01T10:00:00.1234567890", "2024-05-01T10:00:00.1234567890"),
        ("2024-05-01t10:00:00Z", "2024-05-01t10:00:00Z"),
        ("2024-05-01 10:00:00Z", "2024-05-01 10:00:00Z"),
        (" 2024-05-01T10:00:00Z", " 2024-05-01T10:00:00Z"),
        ("2024-05-01T10:00:00Z\n", "2024-05-01T10:00:00Z\n"),
        ("2024-05-01T10:00:00Zx", "2024-05-01T10:00:00Zx"),
        ("2024-05-01T10:00:60Z", "2024-05-01T10:00:60Z"),
        ("2024-05-01T25:00:00Z", "2024-05-01T25:00:00Z"),
        ("2024-05-01T24:00:00.1Z", "2024-05-01T24:00:00.1Z"),
        ("2023-02-29T10:00:00Z", "2023-02-29T10:00:00Z"),
        ("2024-13-01T10:00:00Z", "2024-13-01T10:00:00Z"),
        ("0000-01-01T10:00:00Z", "0000-01-01T10:00:00Z"),
        ("20240501T100000Z", "20240501T100000Z"),
        ("٢٠٢٤-05-01T10:00:00Z", "٢٠٢٤-05-01T10:00:00Z"),
        # The form of old ASP.NET.
        ("/Date(0)/", "1970-01-01T00:00:00Z"),
        ("/Date(-1)/", "1969-12-31T23:59:59.999Z"),
        ("/Date(1714557600000+0200)/", "2024-05-01T10:00:00+00:00"),
        ("/Date(1714557600000-0800)/", "2024-05-01T10:00:00+00:00"),
        ("/Date(1714557600000+02 and more)/", "2024-05-01T10:00:00+00:00"),
        ("/Date()/", "/Date()/"),
        ("/Date(x)/", "/Date(x)/"),
        ("/Date(1714557600000)/ ", "/Date(1714557600000)/ "),
        ("/Date(1714557600000+x)/", "/Date(1714557600000+x)/"),
        ("/Date(5-03+02)/", "/Date(5-03+02)/"),
        ("/Date(00000000000000000001)/", "/Date(00000000000000000001)/"),
        ("/Date(9999999999999999999)/", "/Date(9999999999999999999)/"),
    ],
)
def test_a_text_arrives_as(text: str, arrives: str) -> None:
    assert rewritten(text, UTC) == arrives


@pytest.mark.parametrize(
    ("zone", "text", "arrives"),
    [
        ("Europe/Berlin", "2024-05-01T10:00:00+00:00", "2024-05-01T12:00:00+02:00"),
        ("Europe/Berlin", "2024-01-01T10:00:00+00:00", "2024-01-01T11:00:00+01:00"),
        ("Europe/Berlin", "2024-10-27T00:30:00+00:00", "2024-10-27T02:30:00+02:00"),
        ("Europe/Berlin", "2024-10-27T01:30:00+00:00", "2024-10-27T02:30:00+01:00"),
        ("Europe/Berlin", "2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
        ("Europe/Berlin", "2024-05-01T10:00:00", "2024-05-01T10:00:00"),
        ("America/St_Johns", "2024-01-01T10:00:00+00:00", "2024-01-01T06:30:00-03:30"),
        ("Asia/Tokyo", "9999-12-31T23:00:00+00:00", "9999-12-31T23:59:59.9999999+09:00"),
    ],
)
def test_an_offset_becomes_that_of_the_host(zone: str, text: str, arrives: str) -> None:
    assert rewritten(text, ZoneInfo(zone)) == arrives


@pytest.mark.parametrize(
    "text", ["9999-12-31T24:00:00Z", "/Date(999999999999999)/", "/Date(-62135596800001)/"]
)
def test_a_moment_that_dotnet_has_no_date_for_cannot_be_read(text: str) -> None:
    with pytest.raises(UnreadableText):
        rewritten({"a": [text]}, UTC)


def test_texts_are_rewritten_at_any_depth_and_names_are_not() -> None:
    date, arrives = "2024-05-01T10:00:00.10Z", "2024-05-01T10:00:00.1Z"

    assert rewritten([{"id": date, date: {"deep": [date, [date]]}}], UTC) == [
        {"id": arrives, date: {"deep": [arrives, [arrives]]}}
    ]


def test_numbers_keep_their_value() -> None:
    document = json.loads('{"a": 1e2, "b": 1.0, "c": 12345678901234567890, "d": 0.1, "e": true, "f": null}')

    assert rewritten(document, UTC) == document
    assert json.dumps(rewritten(document, UTC)["a"]) == "100.0"


_ZONE = ["Z", "z", "+", "-", "+02", "-02", "+02:00", "-1130", "+0545", "+02:", ":30", "12"]
_TEXTS = st.one_of(
    st.text(),
    st.from_regex(
        r"(?a)[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?",
        fullmatch=True,
    ),
    st.tuples(st.datetimes(), st.sampled_from(["", *_ZONE])).map(lambda each: each[0].isoformat() + each[1]),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["", "+0200", "-08"])).map(
        lambda each: f"/Date({each[0]}{each[1]})/"
    ),
)
_DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)
_ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu"])


@pytest.mark.long
@given(_DOCUMENTS, _ZONES)
def test_what_was_rewritten_is_rewritten_no_further(document: Any, zone: str) -> None:
    try:
        once = rewritten(document, ZoneInfo(zone))
    except UnreadableText:
        return
    assert rewritten(once, ZoneInfo(zone)) == once
