"""The canonical form is that of RFC 8785, whichever encoder writes it."""

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from cosmos_outbox.outbox.canonical import as_sent, canonical, check, is_a_double

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


def nested(depth: int, inner: Any = None) -> Any:
    """Lists in lists, made without a recursion."""
    for _ in range(depth):
        inner = [inner]
    return inner


@given(JSON)
def test_the_bytes_are_those_of_the_standard(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        (["\u20ac\u0007\"\\/\n\x7f\u2028"], '["€\\u0007\\"\\\\/\\n\x7f\u2028"]'),
        ({"\ue000": 1, "\U00010000": 2}, '{"\U00010000":2,"\ue000":1}'),  # by UTF-16, not by code point
        ({"n": 1.0, "m": 1e21, "k": 1e20}, '{"k":100000000000000000000,"m":1e+21,"n":1}'),
        ({"n": 10**20}, '{"n":100000000000000000000}'),
        ([{"n": 10**20}, True, 7, 2**53 - 1], '[{"n":100000000000000000000},true,7,9007199254740991]'),
    ],
)  # fmt: skip
def test_some_forms(value: Any, expected: str) -> None:
    assert canonical(value) == expected.encode()


@pytest.mark.parametrize(
    "value",
    ["\ud800", {"a": "\udfff"}, {"\ud800": 1}, float("nan"), 2**53 + 1, {1: "a"}, nested(20_000)],
    ids=["text", "value", "name", "not a number", "integer", "name that is none", "depth"],
)
def test_what_has_no_form(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each library has words of its own, and the kind is the contract
        canonical(value)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (2**53, "an integer is beyond 2^53: write it as text"),
        ({"a": "\ud800"}, "a text has a lone surrogate, or a number is not finite: replace it"),
        ({"\ud800": 1}, "a text has a lone surrogate, or a number is not finite: replace it"),
        ([float("inf")], "a text has a lone surrogate, or a number is not finite: replace it"),
        (nested(20_000), "it is nested too deeply"),
    ],
    ids=["integer", "text", "name", "infinite", "depth"],
)
def test_writing_what_not_all_can_read_has_its_kind_of_fault(value: Any, fault: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the words are compared as a whole
        check(value)
    assert str(refused.value) == fault


def test_what_all_can_read_may_be_written() -> None:
    check({"a": [1.5, None, True, "€", 2**53 - 1], "€": {}})


def test_a_message_is_canonical_and_what_has_no_such_form_is_sent_in_ascii() -> None:
    assert as_sent({"b": "€", "a": 1.0}) == '{"a":1,"b":"€"}'.encode()
    assert as_sent({"b": "€\ud800", "a": 1.0}) == b'{"b":"\\u20ac\\ud800","a":1.0}'


@pytest.mark.parametrize(
    ("value", "kept"),
    [(2**53, True), (2**53 + 1, False), (-(2**1023), True), (2**1024, False), (10**400, False)],
    ids=["2^53", "beside it", "large", "too large", "far too large"],
)
def test_a_store_of_doubles_keeps_the_integers_that_are_doubles(value: int, kept: bool) -> None:
    assert is_a_double(value) is kept
