"""A key belongs to its caller, and nobody gets another's keys by a header that the platform does not vouch for."""

from collections.abc import Mapping
from urllib.parse import urlencode

import pytest

from cosmos_outbox.http.message import Request
from cosmos_outbox.http.request import ANONYMOUS, principal
from cosmos_outbox.http.request import caller as of

PRINCIPAL = {"x-ms-client-principal-id": "p-1", "x-ms-client-principal-idp": "aad"}


def caller(
    headers: Mapping[str, str] | None = None, *, code: str | None = None, signed_in: bool = False
) -> str:
    request = Request(
        "POST",
        "http://localhost/api/contacts" + ("" if code is None else f"?{urlencode({'code': code})}"),
        headers or {},
    )
    return of(request, platform_authenticates=signed_in)


def test_a_function_key_is_one_caller_in_the_header_and_in_the_query() -> None:
    assert caller({"x-functions-key": "secret-1"}) == caller(code="secret-1")
    assert caller({"x-functions-key": "secret-1"}) != caller({"x-functions-key": "secret-2"})


@pytest.mark.parametrize(
    "query", ["code=secret-1&code=made-up", "CODE=secret-1", "Code=secret-1&code=made-up"]
)
def test_the_key_in_the_query_is_the_one_that_the_host_has_checked(query: str) -> None:
    sent = Request("POST", f"http://localhost/api/contacts?clientId=me&{query}")
    assert of(sent, platform_authenticates=False) == caller(code="secret-1")


def test_a_principal_is_believed_only_where_the_platform_authenticates() -> None:
    assert caller(PRINCIPAL) == ANONYMOUS
    assert caller(PRINCIPAL | {"x-functions-key": "secret-1"}) == caller(code="secret-1")
    assert caller(PRINCIPAL | {"x-functions-key": "secret-1"}, signed_in=True) == caller(
        PRINCIPAL, code="secret-2", signed_in=True
    )


def test_one_id_of_two_identity_providers_is_two_callers() -> None:
    others = [PRINCIPAL | {"x-ms-client-principal-id": "p-2"}, PRINCIPAL | {"x-ms-client-principal-idp": "x"}]
    assert len({caller(each, signed_in=True) for each in (PRINCIPAL, *others)}) == 3


@pytest.mark.parametrize("signed_in", [True, False])
def test_without_either_the_caller_is_anonymous(signed_in: bool) -> None:
    assert caller(signed_in=signed_in) == caller({"x-functions-key": ""}, code="") == ANONYMOUS


def test_only_a_digest_is_handed_on() -> None:
    assert "secret-1" not in caller(code="secret-1")
    assert "p-1" not in caller(PRINCIPAL, signed_in=True)


def test_the_principal_is_the_one_of_the_keys_and_a_function_key_is_none() -> None:
    signed_in = Request("POST", "http://localhost/api/contacts?code=k", PRINCIPAL)
    assert principal(signed_in, platform_authenticates=True) == caller(PRINCIPAL, signed_in=True)
    assert principal(signed_in, platform_authenticates=False) is None
    assert principal(Request("POST", "http://localhost/?code=k"), platform_authenticates=True) is None
    programs = principal(signed_in, platform_authenticates=False, who="ann")
    assert programs == of(signed_in, platform_authenticates=True, who="ann")
    assert programs not in (None, of(signed_in, platform_authenticates=True, who="bob"))
