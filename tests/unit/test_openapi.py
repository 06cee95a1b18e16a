"""docs/use/openapi.json is what the code says, for every call of the service's own."""

import importlib
import json
from typing import Any

import azure.functions as func
import pytest
from jsonschema import Draft202012Validator

from cosmos_outbox import testing
from cosmos_outbox.http import documents
from cosmos_outbox.http.components import template
from cosmos_outbox.http.message import Request
from cosmos_outbox.http.problems import LONGEST_NAME, LONGEST_REASON, MOST_ERRORS
from cosmos_outbox.http.request import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from cosmos_outbox.settings.errors import EXTRAS
from function_app import app
from infra.bootstrap import service
from tests.support.openapi import FILE, document, problems_of, resolved
from tools.openapi.__main__ import text


def test_the_kept_file_is_what_the_code_says() -> None:
    assert FILE.read_text() == text(), (
        "run .venv/bin/python -m tools.openapi, and commit docs/use/openapi.json"
    )


def test_the_template_has_the_limits_of_the_code() -> None:
    found = template()["components"]
    pages, ids = (found["parameters"][name]["schema"] for name in ("pageSize", "ids"))
    assert (pages["maximum"], pages["default"]) == (MAX_PAGE_SIZE, DEFAULT_PAGE_SIZE)
    assert ids["pattern"].endswith(f"{{0,{MAX_PAGE_SIZE - 1}}}$")
    assert found["schemas"]["Problem"]["properties"]["errors"]["maxItems"] == MOST_ERRORS
    lengths = [
        found["schemas"]["FieldProblem"]["properties"][each]["maxLength"] for each in ("field", "reason")
    ]
    assert lengths == [LONGEST_NAME, LONGEST_REASON]


def test_every_call_has_its_responses_a_description_and_an_example() -> None:
    for path, calls in document()["paths"].items():
        for method, call in calls.items():
            [good, *_] = [resolved(each) for status, each in call["responses"].items() if status < "300"]
            assert "content" in good or "204" in call["responses"], (
                f"{method} {path}: describe what it answers"
            )
            assert call["summary"]
            assert call["description"]
            for each in call["parameters"]:
                assert each["description"]
                assert "example" not in each, "a page to try the call would send it"
                assert each["schema"].get("examples") or each["name"] == "continuationToken"
            for body in call.get("requestBody", {"content": {}})["content"].values():
                assert problems_of(body["example"], body["schema"]["$ref"].rpartition("/")[2]) == []
            assert {"400", "405", "500"} < {*call["responses"]}
            assert ("401" in call["responses"]) == bool(call["security"])


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    def references(node: Any) -> list[dict[str, Any]]:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        own = [node] if isinstance(node, dict) and "$ref" in node else []
        return own + [found for each in inner for found in references(each)]

    for reference in references(document()):
        assert resolved(reference)
    for schema in document()["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


async def test_who_tries_the_examples_of_the_bodies_makes_and_changes_a_contact() -> None:
    def example(method: str, path: str) -> dict[str, Any]:
        body = document()["paths"][path][method.lower()]["requestBody"]
        found: dict[str, Any] = body["content"]["application/json"]["example"]
        return found

    async with testing.in_memory(service):
        made = await testing.call(app, "POST", "/api/contacts", json=example("POST", "/api/contacts"))
        assert made.status_code == 201
        one, where = "/api/contacts/{id}", f"/api/contacts/{json.loads(made.get_body())['id']}"
        for method in ("PUT", "PATCH"):
            assert (await testing.call(app, method, where, json=example(method, one))).status_code == 200


@pytest.mark.parametrize("name", ["ContactReplacement", "ContactPatch"])
def test_what_is_sent_back_allows_no_integer_that_no_body_may_hold(name: str) -> None:
    """Such a body is refused before it is seen that the integer is of what is read only."""
    schema = document()["components"]["schemas"][name]["properties"]["sequence"]
    allowed = Draft202012Validator(schema)
    assert [allowed.is_valid(each) for each in (3, 2**53 - 1, 2**53, -(2**53))] == [True, True, False, False]


def test_who_may_call_is_what_the_functions_say() -> None:
    calls = {
        f"{method} {path}": [name for each in call["security"] for name in each]
        for path, methods in document()["paths"].items()
        for method, call in methods.items()
    }
    assert calls["post /api/contacts"] == ["functionKey"]
    assert {*map(tuple, calls.values())} == {("functionKey",)}, "operators' calls are not in it"


APPS = (
    "function_app",
    "examples.checkout.function_app",
    "examples.imports.function_app",
    "examples.orders.function_app",
)


async def served(name: str) -> dict[str, Any]:
    of: func.FunctionApp = importlib.import_module(name).app
    answer = await testing.call(of, "GET", "/api/openapi.json")
    found: dict[str, Any] = json.loads(answer.get_body())
    return found


@pytest.mark.parametrize("name", APPS)
async def test_the_document_of_every_app_has_each_call_and_no_other(name: str) -> None:
    document = await served(name)
    text = json.dumps(document)
    for part in text.split('"$ref": "#/')[1:]:
        node: Any = document
        for step in part.partition('"')[0].split("/"):
            node = node[step]
        assert node
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert {each["name"] for each in document["tags"]} == {
        tag for calls in document["paths"].values() for each in calls.values() for tag in each["tags"]
    }
    ids = [each["operationId"] for calls in document["paths"].values() for each in calls.values()]
    assert len(ids) == len({*ids})


async def test_without_its_package_the_page_is_missing_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "_PACKAGE", "fastapi_swagger_that_is_not_there")
    monkeypatch.setitem(EXTRAS["docs"], "fastapi_swagger_that_is_not_there", "fastapi-swagger")
    calls = {each.name: each for each in documents.document_calls(lambda _: {}, dict)}
    answer = await calls["get_docs"].handler(Request("GET", "http://localhost/api/docs", {}))
    assert answer.status == 404
    assert b"needs fastapi-swagger: install cosmos-outbox[docs]" in answer.body
