"""What an API tells of itself is open, is kept by caches while it is the same, and is whole for every service."""

import importlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import azure.functions as func
import pytest
from jsonschema import Draft202012Validator
from pydantic import Field, computed_field, create_model

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, WireModel
from cosmos_outbox.http import Action, Request, Resource, asgi_app, documents
from cosmos_outbox.http.documents import document_calls
from cosmos_outbox.testing import call
from function_app import app
from tests.support.tasks import service as tasks_service
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


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Sent(WireModel):
    """What a caller decides of a parcel, in properties of each kind."""

    sent_to: str
    size: Size
    pieces: Annotated[int, Field(ge=0)]
    returned: None = None

    @computed_field
    def weight(self) -> int:
        return self.pieces


class ParcelState(AggregateState):
    sent_to: str
    size: Size
    pieces: int
    returned: None = None


class Parcel(Aggregate[ParcelState]):
    aggregate_type, state_type, found_by = "parcel", ParcelState, ("sent_to",)
    aggregate_id = "1"

    def _created(self, state: ParcelState, sequence: int) -> DomainEvent:
        raise AssertionError("none is made")

    def send_to(self, sent: Sent, *, at: datetime) -> None:
        raise AssertionError("none is changed")

    def delete(self, *, at: datetime) -> None:
        raise AssertionError("none is deleted")


class Forwarding(WireModel):
    to: str
    etag: str
    """Of the place that it goes to: an action's body has its own names."""


def reason(field: str) -> Any:
    """A model that is called as others are."""
    fields: dict[str, Any] = {field: (str, ...)}
    return create_model("Reason", __base__=WireModel, **fields)


async def of_parcels() -> dict[str, Any]:
    def send(sent: Sent, *, id: Any, at: datetime) -> Parcel:  # noqa: A002 - its id
        raise AssertionError("none is made")

    parcels: Resource[Parcel, Sent] = Resource(
        "parcels", Parcel, new=Sent, create=send, change=Parcel.send_to,
        actions=[
            Action("forward", Parcel.send_to, body=Forwarding), Action("open", Parcel.delete),
            *(Action(name, Parcel.send_to, body=reason(name)) for name in ("refuse", "return", "burn")),
        ],
    )  # fmt: skip
    found: dict[str, Any] = (await got(asgi_app(tasks_service, [parcels]), "/openapi.json")).json()
    return found


async def test_a_body_is_described_as_what_a_caller_sends_with_an_example_of_each_kind_of_property() -> None:
    document = await of_parcels()
    schemas, paths = document["components"]["schemas"], document["paths"]
    assert [*schemas["NewParcel"]["properties"]] == ["sentTo", "size", "pieces", "returned"]
    assert schemas["Size"] == {"type": "string", "enum": ["small", "large"]}
    assert schemas["NewParcel"]["properties"]["size"] == {"$ref": "#/components/schemas/Size"}
    body = paths["/parcels"]["post"]["requestBody"]["content"]["application/json"]
    assert body["example"] == {"sentTo": "Sent to", "size": "small", "pieces": 1, "returned": None}


async def test_what_may_be_set_is_not_described_as_what_may_only_be_sent_back() -> None:
    replacement = (await of_parcels())["components"]["schemas"]["ParcelReplacement"]["properties"]
    assert replacement["sentTo"] == {"type": "string"}
    assert replacement["sequence"]["description"] == "As it is now, or left out."


async def test_a_list_tells_by_which_property_it_is_filtered() -> None:
    listed = (await of_parcels())["paths"]["/parcels"]["get"]["parameters"]
    [found_by] = [each for each in listed if each["name"] == "sentTo"]
    assert (found_by["in"], found_by["schema"]) == ("query", {"type": "string", "examples": ["Sent to"]})


async def test_an_action_tells_the_body_that_it_takes_or_that_it_takes_none() -> None:
    paths = (await of_parcels())["paths"]
    forward, opened = [paths[f"/parcels/{{id}}/{name}"]["post"] for name in ("forward", "open")]
    assert forward["requestBody"]["content"] == {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/ForwardingInput"},
            "example": {"to": "To", "etag": "Etag"},
        }
    }
    assert "415" in forward["responses"]
    assert not {"requestBody", "415"} & {*opened, *opened["responses"]}
    assert (
        forward["description"]
        == opened["description"]
        == "Without `If-Match` it is done to the newest version."
    )


async def test_models_that_are_called_alike_have_names_of_their_own() -> None:
    document = await of_parcels()
    for name, told in (("refuse", "ReasonInput"), ("return", "ReasonInput2"), ("burn", "ReasonInput3")):
        call = document["paths"][f"/parcels/{{id}}/{name}"]["post"]
        [body] = call["requestBody"]["content"].values()
        assert body["schema"] == {"$ref": f"#/components/schemas/{told}"}
        assert [*document["components"]["schemas"][told]["properties"]] == [name]
