"""A continuation token is taken only by the list that it was made for."""

import pytest

from cosmos_outbox.lists.continuation import seal, unseal
from cosmos_outbox.outbox.errors import UnknownContinuation

TOKEN = '{"token":"+RID:~abc#RT:1#TRC:2","range":{"min":"","max":"FF"}}'


def test_a_token_is_unsealed_as_it_was_sealed() -> None:
    sealed = seal("contacts", TOKEN)
    assert unseal("contacts", sealed) == TOKEN
    assert sealed.replace("-", "").replace("_", "").isalnum()  # fits into a query string as it is


@pytest.mark.parametrize(
    "forged",
    ["x", "AAAA", "=", "ä", "a b", "A" * 20_000, seal("other", TOKEN), seal("contacts", TOKEN)[:-1],
     seal("contacts", TOKEN) + "AAAA", "!!!!" + seal("contacts", TOKEN), "A" + seal("contacts", TOKEN)[1:], "%00"],
)  # fmt: skip
def test_a_token_that_we_did_not_make_is_refused(forged: str) -> None:
    with pytest.raises(UnknownContinuation, match="start again without one"):
        unseal("contacts", forged)


@pytest.mark.parametrize("content", ["a\r\nx-ms-other: 1", "\0", "\x7f", "é", ""])
def test_what_cannot_stand_in_a_header_is_refused(content: str) -> None:
    with pytest.raises(UnknownContinuation):
        unseal("contacts", seal("contacts", content))
