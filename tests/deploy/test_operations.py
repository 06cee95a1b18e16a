"""What an operator does by hand outlives the next deployment, and the page says how to see that it worked."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.deploy import bicep
from tests.deploy.bicep import MAIN
from tests.deploy.test_bicep import parameters
from tests.support.paths import ROOT

PAGES = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md")]
OPERATE = ROOT / "docs" / "operate"
CHANGES = re.compile(
    r"\baz (?:[\w-]+ )*?(?:create|update|set|delete|restore|register|failover-priority-change)\b"
    r"|\w\.Disabled="
)
"""A command that changes something in Azure, or a setting that does."""

KEPT_BY = {
    "README.md": {"subscriberStopped", "messagingUnits", "otherSubscriptions"},
    "deploy.md": {"serviceBusTopic", "deleteLocks"},
    "emergency-brake.md": {"emergencyBrake"},
    "pausing.md": {"relayPaused"},
    "preflight.md": {"grantPreflight"},
    "recipes.md": {"largestMessageKB"},
    "regions.md": {"cosmosRegions", "cosmosAutomaticFailover"},
    "restore.md": {"cosmosAccountName", "emergencyBrake"},
    "slow-writers.md": {"shedLoadAfterSeconds"},
}
"""The parameters on each page that has the reader change what ``deploy/`` declares."""


def sections(page: Path) -> Iterator[tuple[str, str]]:
    for text in re.split(r"^## ", page.read_text(), flags=re.MULTILINE):
        yield f"{page.relative_to(ROOT)}, {text.splitlines()[0]}", text


def test_a_command_that_changes_something_is_followed_by_how_to_see_it() -> None:
    changing = [(name, text) for page in PAGES for name, text in sections(page) if CHANGES.search(text)]
    assert len(changing) > 8
    assert [name for name, text in changing if not re.search(r"[Ii]t\s+worked\s+when|Afterwards", text)] == []


def test_a_page_that_changes_a_declared_resource_names_its_parameter() -> None:
    assert {page.name for page in OPERATE.glob("*.md") if CHANGES.search(page.read_text())} <= set(KEPT_BY)
    for name, wanted in KEPT_BY.items():
        named = set(re.findall(r"`(\w+)(?:=[^`]+)?`", (OPERATE / name).read_text()))
        assert wanted <= named, name
        assert wanted <= MAIN.names("param"), name


def test_a_paused_relay_and_a_stopped_subscriber_stay_so() -> None:
    """The functions that the page switches off are those that the parameter does, in each app."""
    page = (OPERATE / "pausing.md").read_text()
    stopped = MAIN.declaration("var", "stoppedFunctions").text
    paused = re.findall(r"relayPaused \? \[(.*?)\]", stopped)[0]
    assert set(re.findall(r"AzureWebJobs\.(\w+)\.Disabled=true", page)) == set(bicep.Bicep(paused).words())
    assert "subscriberStopped ? filter(declared.functions.triggered, name => name != 'relay')" in stopped
    off = MAIN.declaration("module", "workersApp").properties()["disabledFunctions"]
    assert "stoppedFunctions, " in off
    assert MAIN.declaration("module", "relayContainer").properties()["stopped"] == "relayPaused"
    assert MAIN.declaration("module", "subscriberContainer").properties()["stopped"] == "subscriberStopped"
    assert MAIN.declaration("module", "relayJob").properties()["paused"] == "relayPaused"
    container = bicep.read("modules/container-app.bicep").text
    assert "minReplicas: stopped ? 0 : minimumReplicas" in container
    assert "rules: stopped ? [] : [" in container, "a rule would start it again"
    job = bicep.read("modules/container-job.bicep").declaration("resource", "job").properties()
    assert job["command"].startswith("paused ? ['true'] : ")


def test_parameters_reach_the_modules_that_declare_what_they_change() -> None:
    cosmos, servicebus = (MAIN.declaration("module", name).properties() for name in ("cosmos", "serviceBus"))
    assert cosmos["nothingExpires"] == "emergencyBrake"
    assert cosmos["regions"] == "empty(cosmosRegions) ? [location] : cosmosRegions"
    assert cosmos["automaticFailover"] == "cosmosAutomaticFailover"
    assert "empty(cosmosAccountName) ? 'cosmos-${resourceToken}' : cosmosAccountName" in (
        MAIN.declaration("module", "cosmos").text
    )
    assert servicebus["topicName"] == "topicName"
    for name in ("messagingUnits", "largestMessageKB"):
        assert servicebus[name] == name
    for each in ("cosmos", "serviceBus"):
        given = MAIN.declaration("module", each).properties()
        assert (given["deleteLock"], given["dataPlaneLogs"]) == ("deleteLocks", "dataPlaneLogs")
    assert (
        "toObject(settings, each => each.name, each => each.value)"
        in MAIN.declaration("var", "ownSettings").text
    )
    assert MAIN.declaration("var", "commonSettings").text.rstrip().endswith("who, ownSettings))"), "they win"
    for app, number in (("app", "0], apiSettings"), ("workersApp", "1], workersSettings")):
        merged = MAIN.declaration("module", app).properties()["appSettings"]
        assert merged == f"union(hostSettings[{number})", "also over what the host reads"


def test_production_asks_who_gets_the_alerts_and_locks_its_data() -> None:
    """Who deploys it by hand is asked for what neither the file nor the template gives."""
    given = parameters("production.parameters.json")
    assert "alertEmail" not in given
    assert "alertEmail" not in MAIN.defaults()
    assert given["deleteLocks"] is True


def test_each_nested_deployment_has_a_name_of_its_environment() -> None:
    """Two environments in one resource group are deployed at the same time."""
    names = re.findall(r"^module \w+ '[^']+' = .*\{\n  name: (.+)$", MAIN.text, re.MULTILINE)
    assert len(names) == len(MAIN.names("module"))
    assert [name for name in names if not name.endswith("-${resourceToken}'")] == []
    assert "uniqueString(resourceGroup().id, environmentName)" in MAIN.text
