"""A violation is told by the steps that belong to it: as a page, and as a picture that any viewer may open."""

import ast
from xml.etree import ElementTree as ET

import pytest

from outbox_simulation.engine.chart import chart
from outbox_simulation.engine.story import MOST_STEPS, Story, page
from outbox_simulation.engine.trace import TraceStep
from outbox_simulation.judging.rules import SENTENCES
from outbox_simulation.judging.violation import Violation
from tests.support.paths import JUDGES

AGGREGATE = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
FIRST = "e1e1e1e1-0000-4000-8000-000000000001"
SECOND = "e2e2e2e2-0000-4000-8000-000000000002"

STEPS = [
    TraceStep(1.0, "api-2", "request", OTHER, "POST"),
    TraceStep(10.0, "api-1", "request", AGGREGATE, f"batch: contact, event {FIRST}"),
    TraceStep(10.2, "api-1", "answer lost", AGGREGATE, "200 <batch> & more"),
    TraceStep(10.25, "world", "lag", "contacts", "for 3 s"),
    TraceStep(10.3, "api-2", "request", AGGREGATE, f"batch: contact, event {SECOND}"),
    TraceStep(10.4, "api-2", "answer", AGGREGATE, "200"),
    TraceStep(11.0, "relay-1", "feed", AGGREGATE, f"{SECOND}"),
    TraceStep(11.1, "relay-1", "bus takes", "bucket-4", f"{SECOND} as 12"),
    TraceStep(11.2, "relay-1", "crash"),
    TraceStep(11.3, "api-2", "crash"),
    TraceStep(26.4, "relay-2", "feed", AGGREGATE, f"{FIRST}, {SECOND}"),
    TraceStep(26.5, "relay-2", "bus takes", "bucket-4", f"{FIRST} as 13"),
    TraceStep(26.6, "relay-2", "bus drops", "bucket-4", SECOND),
    TraceStep(26.7, "relay-2", "checkpoint", "lease 0", "page 4"),
    TraceStep(30.0, "relay-1", "crash"),
]


def story(about: str = f"{AGGREGATE}: [2, 1] around place 1", **told: object) -> Story:
    told = {
        "violation": Violation("order", about),
        "seed": 4711,
        "again": "make simulate SEED=4711 TRACE=-",
        "plan": "faults crash, lag, lost answer; 1 aggregate; ends after 12 s",
        "steps": STEPS,
    } | told
    return Story(**told)  # type: ignore[arg-type] # given by name, for the tests' sake


def test_the_page_tells_the_rule_how_to_run_it_and_that_aggregates_steps() -> None:
    assert page(story()).splitlines() == [
        "BROKEN: order",
        "  Subscribers get the events of an aggregate as 1, 2, 3 ..., each in its place.",
        "  Not so: A: [2, 1] around place 1",
        "",
        "run again   make simulate SEED=4711 TRACE=-",
        "seed        4711",
        "plan        faults crash, lag, lost answer; 1 aggregate; ends after 12 s",
        "order       first in, first out",
        "instances   api-1, api-2, relay-1, relay-2",
        f"A           {AGGREGATE}",
        f"e1          {FIRST}",
        f"e2          {SECOND}",
        "",
        "    +0.000  api-1    request      A         batch: contact, event e1",
        "    +0.200  api-1    answer lost  A         200 <batch> & more",
        "    +0.300  api-2    request      A         batch: contact, event e2",
        "    +0.400  api-2    answer       A         200",
        "    +1.000  relay-1  feed         A         e2",
        "    +1.100  relay-1  bus takes    bucket-4  e2 as 12",
        "    +1.200  relay-1  crash",
        "    +1.300  api-2    crash",
        "            ... 15.1 s later ...",
        "   +16.400  relay-2  feed         A         e1, e2",
        "   +16.500  relay-2  bus takes    bucket-4  e1 as 13",
        "   +16.600  relay-2  bus drops    bucket-4  e2",
    ]


def test_a_violation_that_names_an_event_or_an_operation_is_told_by_its_aggregate() -> None:
    by_event = story(f"ContactCreatedEvent {FIRST} (sequence 1, by c1-3.1)")
    assert [step.instance for step in by_event.told][:2] == ["api-1", "api-1"]
    steps = [TraceStep(2.0, "api-1", "request", AGGREGATE, "for c1-3.1"), *STEPS]
    assert story("c1-3.1 got 404", steps=steps).told[0].detail == "for c1-3.1"


def test_a_violation_that_names_nothing_of_the_trace_has_a_page_too() -> None:
    told = page(story("no event arrived", violation=Violation("nothing happened", "no event arrived")))
    assert told.splitlines()[-1] == "No step of the trace names it."
    ET.fromstring(chart(story("no event arrived")))


def test_a_story_that_is_not_confirmed_says_so() -> None:
    assert "SHUFFLED ONLY" in page(story(confirmed=False))


def test_an_answer_that_the_store_gave_and_that_did_not_come_is_a_lost_one() -> None:
    steps = [TraceStep(1.0, "api-1", "batch", f"things/docs/{AGGREGATE}", "POST 200 12 abc lost_after")]
    assert chart(story(steps=steps)).count('<path class="lost"') == 1
    steps = [TraceStep(1.0, "api-1", "batch", f"things/docs/{AGGREGATE}", "POST 200 12 abc")]
    assert chart(story(steps=steps)).count('<path class="lost"') == 0


def test_of_a_long_story_the_middle_is_left_out() -> None:
    steps = [TraceStep(at / 10, "api-1", "request", AGGREGATE, f"number {at}") for at in range(1000)]
    lines = page(story(steps=steps)).splitlines()
    assert f"  ... {1000 - MOST_STEPS} steps are left out ..." in "\n".join(lines)
    assert lines[-1].endswith("number 999")
    assert len(lines) < MOST_STEPS + 20
    assert f"{1000 - MOST_STEPS} steps left out" in chart(story(steps=steps))


def test_the_chart_has_a_lifeline_for_each_a_row_for_each_step_and_no_script() -> None:
    text = chart(story())
    root = ET.fromstring(text)
    space = {"s": "http://www.w3.org/2000/svg"}
    heads = [each.text for each in root.findall("s:text[@class='head mid']", space)]
    assert heads == ["api-1", "api-2", "relay-1", "relay-2", "store", "broker"]
    times = [each.text or "" for each in root.findall("s:text[@class='time']", space)]
    assert [each for each in times if each.startswith("+")] == [f"{step.at:+.3f} s" for step in story().told]
    assert len(root.findall("s:path[@class='lost']", space)) == 1
    assert len(root.findall("s:line[@class='life dead']", space)) == 2
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= {
        *("svg", "title", "style", "rect", "line", "path", "text")
    }
    assert "prefers-color-scheme: dark" in text
    assert "&lt;batch&gt; &amp; more" in text


@pytest.mark.parametrize(
    "nasty", ["<script>alert(1)</script>", "]]>&amp;\x00\x1b[31m", '"><image href="x"/>']
)
def test_whatever_a_step_says_the_picture_is_one(nasty: str) -> None:
    steps = [TraceStep(1.0, nasty, nasty, AGGREGATE, nasty), TraceStep(2.0, nasty, "request", AGGREGATE)]
    root = ET.fromstring(chart(story(steps=steps, plan=nasty, again=nasty)))
    assert {each.tag.rpartition("}")[2] for each in root.iter()} & {"script", "image"} == set()


def test_every_rule_of_the_judges_has_its_sentence_and_every_sentence_its_rule() -> None:
    used: set[str] = set()
    for file in JUDGES.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Violation":
                used |= {each for each in (_constant(node.args[0]),) if each}
    assert used <= SENTENCES.keys()
    elsewhere = {
        "acknowledged, and not stored",
        "read model",
        "completed, and not applied",
        "first answer",
        "published again",
        "grows for ever",
        "expires in silence",
        "a list",
    }  # given by a name, or by the simulation
    assert SENTENCES.keys() - used == elsewhere


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
