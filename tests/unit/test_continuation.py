"""A continuation token is taken only by the list that it was made for."""

import pytest

from infra.cosmos.continuation import seal, unseal
from outbox.errors import UnknownContinuation

TOKEN = '{"token":"+RID:~abc#RT:1#TRC:2","range":{"min":"","max":"FF"}}'


def test_a_token_is_unsealed_as_it_was_sealed() -> None:
    sealed = seal("contacts", TOKEN)
    assert unseal("contacts", sealed) == TOKEN
    assert sealed.replace("-", "").replace("_", "").isalnum()  # fits into a query string as it is


@pytest.mark.parametrize(
    "forged",
    ["x", "AAAA", "=", "ä", "a b", "A" * 20_000, seal("other", TOKEN), seal("contacts", TOKEN)[:-1],
     seal("contacts", TOKEN) + "AAAA", "A" + seal("contacts", TOKEN)[1:], "%00"],
)  # fmt: skip
def test_a_token_that_we_did_not_make_is_refused(forged: str) -> None:
    with pytest.raises(UnknownContinuation, match="start again without one"):
        unseal("contacts", forged)
