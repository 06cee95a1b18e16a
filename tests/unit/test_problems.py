"""The type of a problem leads to its page wherever the API is mounted, and a field's error has a code for a program."""

import re
from datetime import date
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import httpx
import pydantic
import pytest
from fastapi import FastAPI
from pydantic import (
    AfterValidator,
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    ByteSize,
    EmailStr,
    Field,
    IPvAnyNetwork,
    ValidationError,
)
from pydantic_core import PydanticCustomError
from pydantic_core._pydantic_core import list_all_errors
from starlette.applications import Starlette
from starlette.routing import Mount

from cosmos_outbox.http import asgi_app, fastapi_router, problems
from cosmos_outbox.http.answering import STATUS_OF
from cosmos_outbox.http.problems import InvalidRequest
from cosmos_outbox.http.validation import field_errors as wrong
from cosmos_outbox.http.validation import validated
from cosmos_outbox.testing import in_memory
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


@pytest.mark.parametrize("of", [router, mounted])
@pytest.mark.parametrize("whole", [True, False], ids=["path with it", "path without it"])
async def test_the_prefix_of_a_proxy_is_kept_in_links(of: Any, *, whole: bool) -> None:
    """A server gives it as root_path; the path begins with it (uvicorn) or does not (the proxy has cut it off)."""
    transport = httpx.ASGITransport(app=of("/api"), root_path="/shop")
    base = "http://x/shop/api" if whole else "http://x/api"
    async with in_memory(service), httpx.AsyncClient(transport=transport) as api:
        made = [await api.post(f"{base}/tasks", json={"title": each}) for each in ("a", "b")]
        place = made[0].headers["location"]
        assert place == f"/shop/api/tasks/{made[0].json()['id']}"
        page = await api.get(f"{base}/tasks?pageSize=1")
        assert page.json()["nextLink"].startswith("/shop/api/tasks?")
        refused = await api.get(f"{base}/tasks/4711")
        assert refused.json()["type"] == "/shop/api/problems/not-found"
        at = "http://x" + (place if whole else place.removeprefix("/shop"))
        assert (await api.get(at)).json() == made[0].json()


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


PYDANTIC = Path(pydantic.__file__).parent


class Paint(StrEnum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def _own_words(value: int) -> int:
    if value < 0:
        raise PydanticCustomError("date_of_return", "must be after the departure")
    if value > 9:
        raise PydanticCustomError("too_long", "must have at most {length} nights", {"length": 9})
    if value == 5:
        raise AssertionError("must not be five")
    return value


class Anything(BaseModel):
    text: str = ""
    code: Annotated[str, Field(min_length=2, max_length=3, pattern="^[a-z]+$")] = "ab"
    count: Annotated[int, Field(ge=1, lt=9)] = 1
    at: AwareDatetime | None = None
    day: date | None = None
    items: Annotated[list[str], Field(max_length=1)] = []
    paint: Paint = Paint.RED
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    nights: Annotated[int, AfterValidator(_own_words)] = 1


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"text": 7}, "must be a text"),
        ({"code": "a"}, "must have at least 2 characters"),
        ({"code": "abcd"}, "must have at most 3 characters"),
        ({"code": "A1"}, "must match the pattern ^[a-z]+$"),
        ({"count": "many"}, "must be a whole number"),
        ({"count": 1.5}, "must be a whole number"),
        ({"count": 0}, "must be at least 1"),
        ({"count": 9}, "must be less than 9"),
        ({"at": "2026-03-01T12:00:00"}, "must have a time zone"),
        ({"at": "noon"}, "must be a date and time, such as 2026-03-01T12:00:00Z"),
        ({"day": "noon"}, "must be a date, such as 2026-03-01"),
        ({"items": ["a", "b"]}, "must have at most 1 items"),
        ({"items": {}}, "must be a list"),
        ({"paint": "green"}, "must be 'red' or 'blue'"),
        ({"pet": {"kind": "my name"}}, "is not valid"),
        ({"nights": -1}, "must be after the departure"),
        ({"nights": 10}, "must have at most 9 nights"),
        ({"nights": 5}, "must not be five"),
        ([], "must be a JSON object"),
    ],
)
def test_a_reason_has_the_words_of_this_api(sent: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validated(Anything, sent)
    assert [each.reason for each in refused.value.errors] == [reason]


def test_no_reason_has_pydantics_words_or_the_value() -> None:
    for kind in list_all_errors():
        context = dict(kind.get("example_context") or {})
        context |= {
            name: "secret" for name in ("tag", "error", "attribute", "encoding_error") if name in context
        }
        if kind["type"] in {"value_error", "assertion_error"}:
            context["error"] = ValueError("must be right")
        error: Any = {"type": kind["type"], "loc": ("f",), "input": "secret", "ctx": context}
        [reported] = wrong(ValidationError.from_exception_data("x", [error]))
        assert reported.reason.startswith(("must ", "is ")), reported
        assert "secret" not in reported.reason, reported


class Machine(BaseModel):
    host: IPv4Address | None = None
    network: IPvAnyNetwork | None = None
    zone: ZoneInfo | None = None
    memory: ByteSize | None = None
    image: Base64Bytes | None = None
    owner: EmailStr | None = None
    rule: re.Pattern[str] | None = None
    key: Annotated[bytes, Field(max_length=2)] = b""


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"host": "secret"}, "must be an IP address or network"),
        ({"network": "secret"}, "must be an IP address or network"),
        ({"zone": "secret"}, "must be a time zone, such as Europe/Oslo"),
        ({"memory": "1 secret"}, "must be a number of bytes, such as 10MB"),
        ({"image": "secre"}, "must be base64"),
        ({"owner": "secret"}, "An email address must have an @-sign."),
        ({"rule": "(secret"}, "must be a regular expression"),
        ({"key": "secret"}, "must have at most 2 bytes"),
    ],
)
def test_types_that_pydantic_makes_in_python_are_translated_too(sent: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validated(Machine, sent)
    assert [each.reason for each in refused.value.errors] == [reason]


def test_every_error_that_pydantic_makes_in_python_is_translated() -> None:
    text = "".join(each.read_text("utf-8") for each in PYDANTIC.rglob("*.py") if "v1" not in each.parts)
    names = set(re.findall(r"PydanticCustomError\(\s*'(\w+)'", text)) - {"value_error"}
    assert len(names) > 20
    for name in names:
        error: Any = {"type": PydanticCustomError(name, "secret"), "loc": ("f",), "input": 1}
        [reported] = wrong(ValidationError.from_exception_data("x", [error]))
        assert reported.reason.startswith(("must ", "is ")), name


def test_an_author_keeps_the_commas_of_an_error_named_value_error() -> None:
    error: Any = {
        "type": PydanticCustomError("value_error", "must be red, or blue"),
        "loc": ("f",),
        "input": 1,
    }
    [reported] = wrong(ValidationError.from_exception_data("x", [error]))
    assert reported.reason == "must be red, or blue"
