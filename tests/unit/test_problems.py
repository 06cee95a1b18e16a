"""The type of a problem leads to its page wherever the API is mounted, and a field's error has a code for a program."""

import json
from typing import Annotated, Any

import azure.functions as func
import httpx
import pytest
from fastapi import FastAPI
from pydantic import Field
from starlette.applications import Starlette
from starlette.routing import Mount

from cosmos_outbox import WireModel
from cosmos_outbox.functions.edge.http_functions import received
from cosmos_outbox.http import asgi_app, fastapi_router, problems
from cosmos_outbox.http.answering import STATUS_OF, status_of
from cosmos_outbox.http.errors import FieldError, InvalidRequest
from cosmos_outbox.http.message import below
from cosmos_outbox.http.validation import validated
from cosmos_outbox.testing import call, in_memory
from domain.values import ContactDetails
from function_app import app as contacts
from infra.bootstrap import service as contact_service
from tests.support.contacts import DETAILS_JSON
from tests.support.tasks import TaskDone, TaskError, service, tasks


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


@pytest.mark.parametrize(
    ("kind", "status", "meaning"),
    [
        (
            "not-found",
            "404 Not Found",
            "There is nothing at this path: it never was there, or it was deleted.",
        ),
        (
            "internal-error",
            "500 Internal Server Error",
            "The service failed, which is a bug. The request may have had an effect.",
        ),
        (
            "refused-before",
            "The status of the first answer",
            (
                "The request with this Idempotency-Key was refused when it came first, and that stays its answer. "
                "Read again, and send a new request with a new key."
            ),
        ),
    ],
)
async def test_a_page_tells_the_status_and_what_the_kind_means(kind: str, status: str, meaning: str) -> None:
    page = await got(mounted("/api"), f"/api/problems/{kind}")
    assert page.status_code == 200
    assert f"<p>{status}</p><p>{meaning}</p>" in page.text


def test_a_type_is_below_the_api_of_its_request_alone() -> None:
    with below("/api"):
        with below("/api/v1"):
            assert problems.type_of("Not found") == "/api/v1/problems/not-found"
        assert problems.type_of("Not found") == "/api/problems/not-found"
    assert problems.type_of("Not found") == "/problems/not-found"


@pytest.mark.parametrize(
    ("path", "base"), [("/api/contacts", "/api"), ("/API/Contacts", "/api"), ("/apis/1", "")]
)
def test_a_type_is_the_same_in_whatever_case_the_host_took_the_path(path: str, base: str) -> None:
    """A client compares it."""
    assert received(func.HttpRequest("GET", f"http://localhost{path}", body=b"")).base == base


async def test_a_function_apps_types_lead_to_their_pages() -> None:
    refused = await call(contacts, "GET", "/api/contacts/4711")
    kind = json.loads(refused.get_body())["type"]
    assert kind == "/api/problems/not-found"
    assert b"<h1>Not found</h1>" in (await call(contacts, "GET", kind)).get_body()
    nowhere = await call(contacts, "GET", "/api/nowhere")
    assert json.loads(nowhere.get_body())["type"] == kind
    own = await call(contacts, "GET", "/api/problems/contact-deleted")
    assert b"A deleted contact takes no change: create a new contact." in own.get_body()


async def test_who_asks_whether_a_function_app_can_serve_is_told_so() -> None:
    async with in_memory(contact_service):
        answer = await call(contacts, "GET", "/api/health")
    assert (answer.status_code, json.loads(answer.get_body())) == (200, {"status": "healthy"})


async def test_another_method_has_a_type_too() -> None:
    wrong = await call(contacts, "PUT", "/api/contacts")
    assert (wrong.status_code, json.loads(wrong.get_body())["type"]) == (
        405,
        "/api/problems/method-not-allowed",
    )


def test_each_kind_says_what_to_do_and_has_one_title_and_one_name() -> None:
    kinds = problems.kinds(STATUS_OF)
    assert {title for _, _, title in STATUS_OF} <= {each.title for each in kinds.values()}
    for name, kind in kinds.items():
        assert kind.name == name
        assert kind.meaning.endswith("."), name
    assert (kinds["service-overloaded"].status, kinds["service-unavailable"].status) == (503, 503)


def test_an_error_of_the_services_own_is_a_kind_of_its_own() -> None:
    own = status_of({TaskError: 422, TaskDone: 409})
    assert [(status, title) for _, status, title in own] == [(409, "Task done"), (422, "Task error")]
    assert problems.kinds(own)["task-error"].meaning == "A task refuses a change."


class Numbers(WireModel):
    count: Annotated[int, Field(ge=1, le=9)]


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


@pytest.mark.parametrize(("more", "is_whole"), [(0, True), (1, False)])
def test_of_a_field_error_a_hundred_characters_of_the_name_and_300_of_the_reason_are_told(
    more: int, *, is_whole: bool
) -> None:
    error = FieldError("n" * (100 + more), "r" * (300 + more))
    cut = FieldError("n" * 99 + "…", "r" * 299 + "…")
    assert error.told() == (error if is_whole else cut)


@pytest.mark.parametrize(("count", "code"), [(0, "too_small"), (10, "too_large"), ("x", "wrong_type")])
def test_a_rule_of_pydantics_own_has_a_code_of_ours(count: Any, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validated(Numbers, {"count": count})
    assert [each.code for each in refused.value.errors] == [code]
