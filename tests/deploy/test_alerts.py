"""Operators are alerted: each alert asks for what the app emits, and leads to a page that says what to do."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy import bicep
from tests.deploy.bicep import MAIN
from tests.docs.test_metrics import MADE, rows
from tests.support.paths import ROOT

MODULE = bicep.read("modules/alerts.bicep")
RUNBOOK = (ROOT / "docs" / "operate" / "README.md").read_text()
FILES = sorted((ROOT / "deploy" / "alerts").glob("*.kql"))
WORKBOOK_TEXT = (ROOT / "deploy" / "workbook.json").read_text()
WORKBOOK: dict[str, Any] = json.loads(WORKBOOK_TEXT)

EMITTED = {
    name.strip("`"): set(re.findall(r"`(\w+(?:\.\w+)+)`", attributes)) for name, _, attributes, *_ in rows()
}
"""The metrics of the app, each with its attributes, as docs/operate/metrics.md lists them."""


def alerts(variable: str) -> list[dict[str, str]]:
    """The alerts of a list in the module, with their properties."""
    text = MODULE.declaration("var", variable).text
    return [bicep.Bicep(each).properties() for each in text.split("\n  {\n")[1:]]


LOG_ALERTS, METRIC_ALERTS = alerts("logAlerts"), alerts("metricAlerts")
NAMES = [alert["name"] for alert in (*LOG_ALERTS, *METRIC_ALERTS)]


def items() -> Iterator[tuple[str, dict[str, Any]]]:
    """What the workbook shows, by its name."""
    for item in WORKBOOK["items"]:
        yield item["name"], item["content"]


def queries() -> dict[str, str]:
    """Every query that runs in Azure, without its comments."""
    found = {f"alert {file.stem}": file.read_text() for file in FILES}
    found |= {f"workbook {name}": item["query"] for name, item in items() if item.get("query")}
    return {name: re.sub(r"//.*", "", text) for name, text in found.items()}


@pytest.mark.parametrize("name", queries())
def test_a_query_asks_only_for_what_the_app_emits(name: str) -> None:
    query = queries()[name]
    attributes = set(re.findall(r"Properties\['([^']+)'\]", query))
    metrics = set(re.findall(r"'((?:outbox|messaging)\.[\w.]+)'", query)) - attributes
    assert metrics <= set(MADE)
    if "AppMetrics" in query:
        assert metrics, "figures of different metrics are added up"
    assert attributes <= set().union(*(EMITTED[metric] for metric in metrics))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_query_of_an_alert_gives_a_row_only_when_something_is_wrong(file: Any) -> None:
    summary, condition = file.read_text().split("\n| ")[-2:]
    assert summary.startswith("summarize ")
    assert " by " not in summary, "with 'by', nothing gives no row, and the condition is not looked at"
    assert condition.startswith("where ")
    assert "threshold" in file.read_text()


def test_each_query_belongs_to_an_alert_of_its_name() -> None:
    assert {alert["name"] for alert in LOG_ALERTS} == {file.stem for file in FILES}
    for alert in LOG_ALERTS:
        assert alert["query"] == f"loadTextContent('../alerts/{alert['name']}.kql')"


def test_each_alert_has_a_runbook_section_and_each_section_an_alert() -> None:
    _, *sections = re.split(
        r"^### ", RUNBOOK.partition("\n## Alarms\n")[2].partition("\n## ")[0], flags=re.MULTILINE
    )
    assert sorted(section.splitlines()[0] for section in sections) == sorted(NAMES)
    for section in sections:
        assert re.findall(r"^\*\*(\w+):\*\*", section, re.MULTILINE) == ["Means", "Do", "Afterwards"]
    page = MODULE.declaration("var", "page").text
    assert "${docsUrl}docs/operate/README.md" in page
    for resource in ("logRules", "metricRules"):
        rule = MODULE.declaration("resource", resource)
        assert rule.properties()["description"].endswith("What to do: ${page}#${alert.name}")
        assert "runbook: '${page}#${alert.name}'" in rule.text


def test_each_threshold_is_a_parameter_with_its_documented_default() -> None:
    module = MAIN.declaration("module", "alerts").properties()
    documented = dict(re.findall(r"`(alert\w+)=(\d+)`", RUNBOOK))
    used = {module[alert["threshold"]] for alert in (*LOG_ALERTS, *METRIC_ALERTS)}
    assert used == set(documented)
    assert {name: MAIN.defaults()[name] for name in used} == documented


def test_the_defaults_are_those_that_were_asked_for() -> None:
    defaults = MAIN.defaults()
    assert (defaults["alertOldestWaitingSeconds"], defaults["alertTtlUsedPercent"]) == ("60", "10")
    assert (defaults["alertBehindMinutes"], defaults["alertNoReportMinutes"]) == ("60", "15")
    none = ("alertParkedContacts", "alertSetAsideMessages", "alertDeadLetters")
    assert [defaults[name] for name in none] == ["0", "0", "0"]


def test_without_an_address_nobody_is_notified_and_the_alerts_are_there() -> None:
    assert "= if (!empty(email)) {" in MODULE.declaration("resource", "operators").text
    for resource in ("logRules", "metricRules"):
        rule = MODULE.declaration("resource", resource)
        assert " = if " not in rule.text.splitlines()[0]
        assert "empty(email) ? [] : [" in rule.text


def test_the_workbook_shows_the_figure_of_each_alert() -> None:
    assert set(NAMES) <= {name for name, _ in items()}
    shown = {metric["metric"].partition("--")[2] for _, item in items() for metric in item.get("metrics", [])}
    assert shown == {alert["metric"] for alert in METRIC_ALERTS}


def test_every_placeholder_of_the_workbook_is_replaced() -> None:
    placeholders = set(re.findall(r"<\w+>", WORKBOOK_TEXT))
    assert placeholders
    assert placeholders <= set(MODULE.declaration("resource", "workbook").words())
