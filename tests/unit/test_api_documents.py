"""What an API tells of itself is open, is kept by caches while it is the same, and is whole for every service."""

import importlib
import json
from typing import Any

import azure.functions as func
import pytest
from jsonschema import Draft202012Validator

from cosmos_outbox.http import Request, documents
from cosmos_outbox.http.documents import document_calls
from cosmos_outbox.testing import call
from function_app import app
from tests.unit.test_problems import got, mounted

APPS = (
    "function_app",
    "examples.checkout.function_app",
    "examples.imports.function_app",
    "examples.orders.function_app",
)


async def served(name: str) -> dict[str, Any]:
    of: func.FunctionApp = importlib.import_module(name).app
    answer = await call(of, "GET", "/api/openapi.json")
    found: dict[str, Any] = json.loads(answer.get_body())
    return found


@pytest.mark.parametrize("name", APPS)
async def test_the_document_of_every_app_tells_each_call_and_leads_nowhere_else(name: str) -> None:
    document = await served(name)
    text = json.dumps(document)
    for part in text.split('"$ref": "#/')[1:]:
        node: Any = document
        for step in part.partition('"')[0].split("/"):
            node = node[step]
        assert node
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    operators = [
        each for calls in document["paths"].values() for each in calls.values() if each["tags"] == ["operators"]
    ]  # fmt: skip
    assert operators
    assert [each["name"] for each in document["tags"]][-1] == "operators", (
        "who builds on it reads the others first"
    )
    assert {each["name"] for each in document["tags"]} == {
        tag for calls in document["paths"].values() for each in calls.values() for tag in each["tags"]
    }
    for each in operators:
        assert {"200", "204"} & {*each["responses"]}, each["operationId"]
        assert "content" in each["responses"].get("200", {"content": {}}), each["operationId"]
    ids = [each["operationId"] for calls in document["paths"].values() for each in calls.values()]
    assert len(ids) == len({*ids})


async def test_a_cache_asks_before_each_use_and_the_same_is_not_sent_again() -> None:
    for path in ("/api/openapi.json", "/api/docs", "/api/docs/swagger-ui.css"):
        first = await call(app, "GET", path)
        assert (first.status_code, first.headers["Cache-Control"]) == (200, "no-cache")
        again = await call(app, "GET", path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.get_body()) == (304, b"")


async def test_a_mounted_api_has_its_own_document() -> None:
    assert {*(await got(mounted("/v2"), "/v2/openapi.json")).json()["paths"]} == {
        "/v2/tasks", "/v2/tasks/{id}", "/v2/tasks/{id}/history", "/v2/tasks/{id}/give", "/v2/tasks/{id}/finish"
    }  # fmt: skip
    assert "docs/start.js" in (await got(mounted("/v2"), "/v2/docs")).text


async def test_a_slash_too_many_leads_to_the_page() -> None:
    """As the Functions host hands it over: below such an address the page would find none of its files."""
    [docs] = [each for each in document_calls(lambda base: {}, dict) if each.name == "get_docs"]
    answer = await docs.handler(Request("GET", "http://localhost/api/docs/"))
    assert (answer.status, answer.headers["Location"]) == (308, "/api/docs")


async def test_the_page_runs_nothing_but_its_files() -> None:
    page = await call(app, "GET", "/api/docs")
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    for file in ("swagger-ui-bundle.js", "swagger-ui.css", "start.js"):
        assert (await call(app, "GET", f"/api/docs/{file}")).status_code == 200
        assert file.encode() in page.get_body()
    for file in ("main.py", "..%2fmain.py", "x.js"):
        assert (await call(app, "GET", f"/api/docs/{file}")).status_code == 404


async def test_without_the_extra_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "find_spec", lambda name: None)
    answer = await call(app, "GET", "/api/docs")
    assert answer.get_body() == (
        b"fastapi-swagger is not installed; install cosmos-outbox[docs] to read and try the API here.\n"
    )
    assert (await call(app, "GET", "/api/docs/swagger-ui.css")).status_code == 404
