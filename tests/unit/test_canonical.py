"""The canonical form is that of RFC 8785, whichever encoder writes it."""

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from cosmos_outbox.outbox.canonical import canonical

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


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
    ],
)  # fmt: skip
def test_some_forms(value: Any, expected: str) -> None:
    assert canonical(value) == expected.encode()


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udfff"}, {"\ud800": 1}, float("nan"), 2**53 + 1])
def test_what_has_no_form(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each library has words of its own, and the kind is the contract
        canonical(value)
