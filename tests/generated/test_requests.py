"""Requests that are made from the document, right and wrong ones: each is answered as the document tells.

schemathesis makes them and judges the answers with all of its checks. One check is ours: a request that fits the
document is accepted, but for what no schema can say (``excused``).
"""

import asyncio
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import azure.functions as func
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)

from cosmos_outbox.testing import call, in_memory
from function_app import app
from infra.bootstrap import service
from tests.support.contacts import DETAILS_JSON
from tests.support.openapi import document

KEY = {"x-functions-key": "a-key"}
OF_CALLERS = [
    f"{method.upper()} {path}"
    for path, calls in document()["paths"].items()
    for method, each in calls.items()
    if each["security"] == [{"functionKey": []}]
]
STATE = {404, 409, 410, 412, 422}
"""Refusals that depend on what is stored, or on what came before with the same key."""


RESERVED = re.compile(r"\.(arpa|invalid|local|localhost|onion|test)\.?$", re.IGNORECASE)
"""Names that no mail is sent to (RFC 6761, 6762 and 7686)."""
CONFIG = schemathesis.Config.from_dict(
    {
        "checks": {
            "negative_data_rejection": {"expected-statuses": ["400", *map(str, sorted(STATE)), "413", "415"]}
        }
    }
)
"""A wrong request may be refused for its condition before its body is looked at."""


def excused(case: Case[Any], error: dict[str, str]) -> bool:
    """Whether a field's error depends on what is stored, or on what no schema tells."""
    what = error["field"], error["code"]
    sent = {**(case.query or {}), **(case.body if isinstance(case.body, dict) else {})}
    return (
        error["code"] in ("unknown_token", "read_only")
        or (case.method == "PATCH" and what == ("company.companyName", "required"))
        or (what == ("email", "email") and RESERVED.search(str(sent["email"])) is not None)
    )


def ignores_date(case: Case[Any]) -> bool:
    """Whether a version decides, and the date beside it is not even read (RFC 9110, 13.1.4)."""
    has_version = "If-Match" in case.headers or (isinstance(case.body, dict) and "etag" in case.body)
    return has_version and "If-Unmodified-Since" in case.headers


class Api:
    """The contact service in memory, with the host's part of it: the keys."""

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self._run = run
        self.statuses: Counter[str] = Counter()

    def __call__(self, case: Case[Any]) -> Response:
        sent = requests.Request(**case.as_transport_kwargs(base_url="http://localhost")).prepare()
        answer = self._answered(sent)
        self.statuses[f"{case.method} {answer.status_code}"] += 1
        headers = {name.lower(): [value] for name, value in answer.headers.items()}
        if answer.mimetype and answer.status_code != 204:
            headers["content-type"] = [answer.mimetype]
        packed = headers.pop("content-encoding", None) == ["gzip"]
        body = gzip.decompress(answer.get_body()) if packed else answer.get_body()
        return Response(answer.status_code, headers, body, sent, 0.0, verify=False)

    def _answered(self, sent: requests.PreparedRequest) -> func.HttpResponse:
        if sent.headers.get("x-functions-key") != KEY["x-functions-key"]:
            return func.HttpResponse(status_code=401, mimetype="")
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body or b""
        assert isinstance(body, bytes), "schemathesis sends no streams here"
        headers = {
            name: value if isinstance(value, str) else value.decode("latin-1")
            for name, value in sent.headers.items()
        }
        answer: func.HttpResponse = self._run(
            call(app, str(sent.method), sent.path_url, body=body, headers=headers)
        )
        return answer

    def contact(self) -> str:
        """The id of a new one, whose address no format ``email`` has: an answer's is ``idn-email``."""
        details = DETAILS_JSON | {"email": "jörg@exämple.org"}
        made = self._run(call(app, "POST", "/api/contacts", json=details))
        return str(json.loads(made.get_body())["id"])


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with asyncio.Runner() as runner:
        memory = in_memory(service)
        runner.run(memory.__aenter__())
        yield Api(runner.run)
        runner.run(memory.__aexit__(None, None, None))


def judged(api: Api, case: Case[Any], mode: GenerationMode) -> None:
    """Makes one call. Fails when the answer is not as the document tells."""
    case.headers.update(KEY)
    answer = api(case)
    excluded = [
        positive_data_acceptance,
        ignored_auth,
        *([negative_data_rejection] if ignores_date(case) else []),
    ]
    case.validate_response(answer, excluded_checks=excluded)
    if mode is GenerationMode.POSITIVE and answer.status_code not in STATE and answer.status_code >= 400:
        errors = json.loads(answer.content)["errors"]
        assert answer.status_code == 400, answer.content
        assert errors
        assert all(excused(case, each) for each in errors), answer.content


@pytest.mark.long  # tests/e2e/test_api.py makes every call at every run, and judges it by the document too
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [*GenerationMode])
@pytest.mark.parametrize("operation", OF_CALLERS)
def test_generated_requests_are_answered_as_documented(
    api: Api, operation: str, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(document(), config=CONFIG)
    method, path = operation.split()
    cases = schema[path][method].as_strategy(generation_mode=mode)

    @settings(
        max_examples=60, database=None, deadline=timedelta(seconds=30), phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )  # fmt: skip
    @given(case=cases, there=st.booleans())
    def each(case: Case[Any], *, there: bool) -> None:
        if there and "id" in case.path_parameters:
            case.path_parameters["id"] = one
        judged(api, case, mode)

    one = api.contact()
    each()


def test_without_a_key_or_with_a_wrong_one_the_document_has_401(api: Api) -> None:
    schema = schemathesis.openapi.from_dict(document(), config=CONFIG)
    for headers in ({}, {"x-functions-key": "wrong"}):
        case = schema["/api/contacts"]["GET"].Case(headers=headers)
        answer = api(case)
        assert answer.status_code == 401
        case.validate_response(answer, excluded_checks=[ignored_auth])
