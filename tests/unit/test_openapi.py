"""docs/use/openapi.json is what the code says, for every function, and every answer that operators get fits it."""

import importlib
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import azure.functions as func
import pytest
from jsonschema import Draft202012Validator

from cosmos_outbox import testing
from cosmos_outbox.cosmos.upkeep.event_list import EventPage, EventState, ListedEvent
from cosmos_outbox.cosmos.upkeep.relay_failures import RelayFailure
from cosmos_outbox.functions.operator import operations, set_aside
from cosmos_outbox.http.message import Answer
from cosmos_outbox.inbox.progress import Counts, Side, WalkProgress
from cosmos_outbox.inbox.set_aside import Delivery, Record, RecordPage, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.dependencies import DependencyHealth
from cosmos_outbox.operations.instance import Instance
from cosmos_outbox.operations.lease_status import LeaseStatus, RelayStatus
from cosmos_outbox.operations.views.names import names_of
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.parking_lot import Discarding, ParkedEvent, ParkedPage, ParkedState
from cosmos_outbox.outbox.replay import Replayed
from function_app import app
from infra.bootstrap import service
from tests.support.openapi import FILE, document, problems_of, resolved
from tools.openapi.__main__ import text

OPERATIONS = [names_of(kind) for kind in service.aggregates]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OF = AggregateKey("contact", "c")


def parked(state: ParkedState, aggregate: AggregateKey | None = OF) -> ParkedEvent:
    given_up = Discarding(NOW, "a test") if state is ParkedState.DISCARDED else None
    return ParkedEvent(
        "0" * 32, "e", aggregate, None, None, "too large", NOW, state, 0, NOW, given_up, is_notice=False
    )


def record(state: RecordState, delivery: Delivery | None) -> Record:
    return Record("0" * 32, state, "broken", NOW, "m", 1, None, None, None, None, delivery=delivery)


EVENT = ListedEvent("e", 7, "Changed", "2026-03-01T12:00:00Z", "c", EventState.SENT)
BARE = ListedEvent("e", None, None, None, None, EventState.PARKED, "0" * 32)
LEASES = [LeaseStatus("0", None, 3, None, 0.0), LeaseStatus("1", "me", 3, 2, 0.5, NOW, 4711, 4714, 1.5, 2.0)]
DELIVERY = Delivery("s", "m", 1, b"{}", {"sequence": 1})

FAILURES = [RelayFailure(Hindrance.BUG, NOW, "KeyError")]
ANSWERS: list[tuple[str, Answer]] = [
    ("Relay", operations.relay_status(
            RelayStatus(LEASES, ["2"], Counter(contact=2), 0, FAILURES), OPERATIONS
        )),
    (
        "Dependencies",
        operations.dependencies(
            [DependencyHealth("a", True, 4, None), DependencyHealth("b", False, 4, "away")]
        ),
    ),
    ("Instance", operations.instance(Instance({"EVENT_TTL_SECONDS": 1}), OPERATIONS, ["set-aside"])),
    ("EventPage", operations.events_listed(EventPage(OF, [EVENT, BARE], None), OPERATIONS)),
    ("EventPage", operations.events_listed(EventPage(OF, [], 3), OPERATIONS)),
    *(
        ("ParkedPage", operations.parked_listed(ParkedPage([parked(state, of)], "x"), OPERATIONS, 60))
        for state in ParkedState
        for of in (OF, None)
    ),
    ("Parked", operations.parked_shown(parked(ParkedState.DISCARDED), OPERATIONS)),
    ("Replayed", operations.replayed(Replayed(3, done=False))),
    ("Subscriber", set_aside.subscriber_status({RecordState.WAITING: 1}, None, None)),
    (
        "Subscriber",
        set_aside.subscriber_status(
            {}, WalkProgress(NOW, Side.SOURCES, last_counts=Counts(1), last_ended_at=NOW), WalkProgress(NOW)
        ),
    ),
    *(
        ("SetAsidePage", set_aside.listed(RecordPage([record(state, None)], None), OPERATIONS))
        for state in RecordState
    ),
    ("SetAside", set_aside.shown(record(RecordState.WAITING, DELIVERY), OPERATIONS)),
    ("SetAside", set_aside.shown(record(RecordState.REFUSED, None), OPERATIONS)),
]  # fmt: skip


def test_the_kept_file_is_what_the_code_says() -> None:
    assert FILE.read_text() == text(), (
        "run .venv/bin/python -m tools.openapi, and commit docs/use/openapi.json"
    )


def test_every_call_tells_what_it_answers_and_has_a_description_and_an_example() -> None:
    for path, calls in document()["paths"].items():
        for method, call in calls.items():
            [good, *_] = [resolved(each) for status, each in call["responses"].items() if status < "300"]
            assert "content" in good or "204" in call["responses"], f"{method} {path}: tell what it gives"
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


@pytest.mark.parametrize(("schema", "answer"), ANSWERS)
def test_an_answer_to_an_operator_is_as_told(schema: str, answer: Answer) -> None:
    assert problems_of(json.loads(answer.body), schema) == []


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
    assert calls["post /api/parked/{id}/discard"] == ["adminKey"]
    assert calls["get /api/health"] == calls["get /api/operations"] == []


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
