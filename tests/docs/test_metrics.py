"""docs/operate/metrics.md has the metrics and spans that the code makes: alerts are written over these names."""

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from cosmos_outbox.inbox.telemetry import Outcome
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.telemetry import OFTEN, SELDOM, Why
from cosmos_outbox.telemetry.messaging import MOST_LINKS
from cosmos_outbox.telemetry.tracing import CORRELATION_ID
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "operate" / "metrics.md").read_text()
STORY = (ROOT / "docs" / "operate" / "README.md").read_text()
MODULES = [*(ROOT / "cosmos_outbox").rglob("*.py"), *(ROOT / "infra").rglob("*.py")]
TESTS = [*(ROOT / "tests" / "unit").glob("*.py"), *(ROOT / "tests" / "contract").glob("*.py")]
KINDS = {
    "create_counter": "counter",
    "create_histogram": "histogram",
    "create_observable_gauge": "gauge",
}


def made(module: Path) -> Iterator[tuple[str, str]]:
    """Each metric's name with its kind and unit."""
    text = module.read_text()
    if not any(kind in text for kind in KINDS):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KINDS:
            name, unit, _ = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
            yield name, f"{KINDS[node.func.attr]} {unit}"


MADE = {name: kind for module in MODULES for name, kind in made(module)}


def rows() -> list[list[str]]:
    table = PAGE.partition("## The metrics")[2].partition("## Traces")[0]
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("| `")
    ]


def test_the_page_lists_each_metric_with_its_kind_and_unit() -> None:
    assert MADE
    assert {name.strip("`"): kind for name, kind, *_ in rows()} == MADE


def test_the_page_says_when_and_what_to_do() -> None:
    assert not [name for name, _, _, when, todo in rows() if not when or not todo]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("outbox.events.parked", Why),
        ("outbox.inbox.events", Outcome),
        ("outbox.relay.failed_rounds", FailureReason),
    ],
)
def test_the_page_lists_the_values_of_an_attribute(name: str, values: type[StrEnum]) -> None:
    [attributes] = [row[2] for row in rows() if row[0] == f"`{name}`"]
    assert {str(value) for value in values} <= set(re.findall(r"`(\w+)`", attributes))


def test_what_the_page_says_of_times_and_numbers_is_so() -> None:
    assert f"({OFTEN:.0f} s, for the relay's {SELDOM:.0f} s)" in PAGE
    assert f"`create events` of its messages, {MOST_LINKS} at most" in PAGE


@pytest.mark.parametrize("name", sorted(MADE))
def test_each_metric_has_a_test_with_an_expectation(name: str) -> None:
    text = "".join(test.read_text() for test in TESTS)
    short = name.removeprefix("outbox.relay.")
    assert f'"{name}"' in text or f'"{short}"' in text


def test_the_query_for_a_support_ticket_asks_for_what_spans_have() -> None:
    [query] = re.findall(r"```kusto\n(.*?)```", STORY.partition("## The story of one request")[2], re.DOTALL)[
        :1
    ]
    assert f'customDimensions["{CORRELATION_ID}"]' in query
    assert 'strcat("[", id, "]")' in query
