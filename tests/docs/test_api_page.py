"""docs/use/api.md and the document say the same, and its examples are requests that are answered so."""

import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from cosmos_outbox.testing import call, in_memory
from function_app import app
from infra.bootstrap import service
from tests.support.contacts import DETAILS_JSON
from tests.support.openapi import document, untold
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "use" / "api.md").read_text()
OF_CALLERS = "".join(re.split(r"## Calls for operators.*?(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE))
ROWS = re.findall(
    r"^\| `([A-Z]+) (/api/(?!(?:health|operations)`)[^`?]*)[^`]*` \| (.*) \|$", OF_CALLERS, re.MULTILINE
)
CALLS: dict[tuple[str, str], Any] = {
    (method.upper(), path): call for path, calls in document()["paths"].items() for method, call in calls.items()
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "answer"), ROWS)
def test_a_call_in_a_table_is_in_the_document_with_its_answers(method: str, path: str, answer: str) -> None:
    documented = CALLS[method, path]["responses"].keys()
    assert {*re.findall(r"\b[2345]\d\d\b", answer)} <= {*documented}


def test_every_call_for_callers_is_in_a_table() -> None:
    assert {*CALLS} <= {(method, path) for method, path, _ in ROWS}


def test_the_table_of_errors_has_every_status_that_the_document_has() -> None:
    table = PAGE.partition("## Errors")[2]
    shown = {each for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for each in row.split(", ")}
    documented = {status for call in CALLS.values() for status in call["responses"] if status >= "400"}
    assert shown == documented - {"401"}, "401 is the platform's"


def exchanges() -> list[tuple[str, str]]:
    """The page's requests, each with its answer."""
    blocks = re.findall(r"```http\n(.*?)```", PAGE, re.DOTALL)
    return list(zip(blocks[::2], blocks[1::2], strict=True))


def parts(block: str) -> tuple[str, dict[str, str], str]:
    """The first line, the headers, the body."""
    head, _, body = block.strip().partition("\n\n")
    first, *lines = head.splitlines()
    return first, dict(line.split(": ", 1) for line in lines), body


class Known:
    """What stands on the page for an id, a version, a time or a token: it is learned once, and the same ever after."""

    NAMES = frozenset(
        {
            "id",
            "etag",
            "ETag",
            "createdAt",
            "modifiedAt",
            "appliedAt",
            "asOf",
            "continuationToken",
            "correlationId",
        }
    )

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, text: str) -> str:
        for shown, real in self._real.items():
            text = text.replace(shown, real)
        return text

    def differs(self, shown: Any, real: Any, name: str = "") -> list[str]:
        """Where an answer is not as the page shows it; ``...`` stands for other fields, and for the rest of a text."""
        if isinstance(shown, dict) and isinstance(real, dict):
            whole = "..." in shown or shown.keys() == real.keys()
            found = [] if whole else [f"{name} has {', '.join(real)}"]
            named = [key for key in shown if key != "..."]
            return found + [each for key in named for each in self.differs(shown[key], real.get(key), key)]
        if isinstance(shown, list) and isinstance(real, list) and len(shown) == len(real):
            return [each for pair in zip(shown, real, strict=True) for each in self.differs(*pair, name)]
        if name in self.NAMES and isinstance(shown, str) and isinstance(real, str):
            self._real.setdefault(shown, real)
        if isinstance(shown, str):
            shown = self.real(shown)
            same = str(real).startswith(shown[:-3]) if shown.endswith("...") else shown == real
        else:
            same = isinstance(real, float) if isinstance(shown, float) else shown == real  # how late, say
        return [] if same else [f"{name} is {real}, not {shown}"]


async def test_the_examples_are_requests_that_are_answered_so() -> None:
    known, wrong, statuses = Known(), [], []
    async with in_memory(service) as memory:
        await call(app, "POST", "/api/contacts", json=DETAILS_JSON)  # so that a list has another page
        for asked, shown in exchanges():
            first, headers, body = parts(asked)
            method, path = known.real(first).split()
            given = {name: known.real(value) for name, value in headers.items()}
            if body:
                given.setdefault("Content-Type", "application/json")
            await memory.deliver()
            answer = await call(app, method, path, body=known.real(body).encode(), headers=given)
            status, documented, document_shown = parts(shown)
            real = answer.get_body()
            statuses.append(int(status))
            wrong += known.differs(int(status), answer.status_code, first)
            if document_shown:  # first, since it has the id
                wrong += known.differs(json.loads(document_shown), json.loads(real), first)
            for name, value in documented.items():
                wrong += known.differs(value, answer.headers.get(name), name)
            route = re.sub(r"[0-9a-f-]{36}", "{id}", urlsplit(path).path)
            heads = {**answer.headers, "Content-Type": answer.mimetype}
            wrong += untold(method, route, answer.status_code, heads, real)
    assert wrong == []
    assert {200, 201, 400, 412} <= {*statuses}
