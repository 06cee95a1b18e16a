"""The type of a problem leads to its page wherever the API is mounted, and a field's error has a code for a program."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from cosmos_outbox.http import asgi_app, fastapi_router, problems
from cosmos_outbox.http.answering import STATUS_OF
from cosmos_outbox.http.problems import InvalidRequest
from cosmos_outbox.http.validation import validated
from domain.values import ContactDetails
from tests.support.contacts import DETAILS_JSON
from tests.support.tasks import service, tasks


def router(prefix: str) -> FastAPI:
    app = FastAPI()
    app.include_router(fastapi_router(service, [tasks]), prefix=prefix)
    return app


def mounted(prefix: str) -> Any:
    made = asgi_app(service, [tasks])
    return Starlette(routes=[Mount(prefix, app=made)]) if prefix else made


async def got(app: Any, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as api:
        return await api.get(path, headers=headers)


@pytest.mark.parametrize("prefix", ["", "/api", "/api/v1"])
@pytest.mark.parametrize("of", [router, mounted])
async def test_a_type_leads_to_its_page_wherever_the_api_is_mounted(of: Any, prefix: str) -> None:
    app = of(prefix)
    refused = await got(app, f"{prefix}/tasks/4711")
    assert refused.json()["type"] == f"{prefix}/problems/not-found"
    page = await got(app, refused.json()["type"])
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>Not found</h1>" in page.text
    assert page.headers["content-security-policy"] == "default-src 'none'"
    assert "takes no change" not in page.text
    own = await got(app, f"{prefix}/problems/task-done")
    assert "<p>A task that is done changes no more.</p>" in own.text
    assert (await got(app, f"{prefix}/problems/gone-fishing")).status_code == 404


def test_each_kind_says_what_to_do_and_has_one_title_and_one_name() -> None:
    kinds = problems.kinds(STATUS_OF)
    assert {title for _, _, title in STATUS_OF} <= {each.title for each in kinds.values()}
    for name, kind in kinds.items():
        assert kind.name == name
        assert kind.meaning.endswith("."), name
    assert (kinds["service-overloaded"].status, kinds["service-unavailable"].status) == (503, 503)


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"name": {"firstName": " ", "lastName": "x" * 101}}, {"name.firstName": "blank", "name.lastName": "too_long"}),
        ({"name": {"firstName": "a\nb", "lastName": "a\u202eb"}},
         {"name.firstName": "control_character", "name.lastName": "direction"}),
        ({"name": {"firstName": "a"}}, {"name.lastName": "required"}),
        ({"email": "nobody"}, {"email": "email"}),
        ({"email": 7}, {"email": "wrong_type"}),
        ({"company": []}, {"company": "wrong_type"}),
        ({"nickname": "x"}, {"nickname": "unknown"}),
    ],
)  # fmt: skip
def test_a_field_error_has_a_code(changed: dict[str, Any], codes: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validated(ContactDetails, DETAILS_JSON | changed)
    assert {each.field: each.code for each in refused.value.errors} == codes
