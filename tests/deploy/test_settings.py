"""One set of settings: in Bicep, in the sample, in what the app reads, and in the documentation."""

import json
import re
from pathlib import Path

from infra import settings
from tests.deploy import bicep
from tests.support.paths import ROOT

MAIN = bicep.read(ROOT / "deploy" / "main.bicep")
SAMPLE: dict[str, str] = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
SETTINGS_MD = (ROOT / "docs" / "settings.md").read_text()

APP_SETTINGS = {
    "COSMOS",
    "COSMOS_DATABASE",
    "COSMOS_CONTAINER",
    "COSMOS_LEASE_CONTAINER",
    "COSMOS_PARKED_CONTAINER",
    "SERVICEBUS",
    "SERVICEBUS_TOPIC",
    "SERVICEBUS_SUBSCRIPTION",
    "SERVICEBUS_TOPIC_PARTITIONED",
    "EVENT_TTL_SECONDS",
    "IDEMPOTENCY_TTL_SECONDS",
}
STORAGE = "AzureWebJobsStorage"
TELEMETRY = {"APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"}
IDENTITY = {"credential", "clientId"}


def connections(names: dict[str, str]) -> set[str]:
    """The settings, the fields of one connection taken together."""
    return {name.partition("__")[0] for name in names}


def read_by_the_app() -> set[str]:
    sources = (ROOT / "infra" / "settings.py", ROOT / "function_app.py")
    pattern = r'"%?((?:COSMOS|SERVICEBUS|EVENT|IDEMPOTENCY)[A-Z_]*)%?"'
    return {name for source in sources for name in re.findall(pattern, source.read_text())}


def documented() -> set[str]:
    table = SETTINGS_MD.partition("\n## The app\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name.partition("__")[0] for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_app_the_sample_bicep_and_the_documentation_name_the_same_settings() -> None:
    assert read_by_the_app() == APP_SETTINGS
    assert connections(SAMPLE) == APP_SETTINGS | {STORAGE, "FUNCTIONS_WORKER_RUNTIME"}
    assert connections(MAIN.objects("appSettings")) == APP_SETTINGS | {STORAGE} | TELEMETRY
    assert documented() == APP_SETTINGS | {STORAGE}


def test_every_connection_in_azure_is_an_identity_and_no_string() -> None:
    declared = set(MAIN.objects("appSettings"))
    for name, address in (
        ("COSMOS", "accountEndpoint"),
        ("SERVICEBUS", "fullyQualifiedNamespace"),
        (STORAGE, "accountName"),
    ):
        assert {each for each in declared if each.partition("__")[0] == name} == {
            f"{name}__{field}" for field in {address} | IDENTITY
        }
    everything = "".join(bicep.read(file).text for file in (ROOT / "deploy").rglob("*.bicep"))
    assert "listKeys" not in everything
    assert "AccountKey" not in everything


def deployed() -> dict[str, str]:
    """What the app finds in its environment; what only Azure knows is made up."""
    found = {}
    for name, expression in MAIN.objects("appSettings").items():
        if literal := re.fullmatch(r"'(\w+)'", expression):
            found[name] = literal[1]
        elif re.fullmatch(r"\w+Name", expression):
            found[name] = MAIN.value(expression)
        elif number := re.fullmatch(r"string\((\w+)\)", expression):
            found[name] = MAIN.defaults()[number[1]]
        else:
            found[name] = f"made-up-{name}"
    return found


def test_the_app_reads_the_settings_of_bicep_as_those_of_the_sample_with_an_identity() -> None:
    here, there = settings.load(SAMPLE), settings.load(deployed())
    assert (there.cosmos.connection_string, there.servicebus.connection_string) == (None, None)
    for connection, name in ((there.cosmos, "COSMOS"), (there.servicebus, "SERVICEBUS")):
        assert connection.managed_identity_only
        assert connection.client_id == f"made-up-{name}__clientId"
    for name in (
        "cosmos_database",
        "cosmos_container",
        "cosmos_lease_container",
        "cosmos_parked_container",
        "servicebus_topic",
        "servicebus_topic_partitioned",
        "event_ttl_seconds",
        "idempotency_ttl_seconds",
    ):
        assert getattr(there, name) == getattr(here, name), name


def test_the_emulator_has_the_topic_and_subscription_of_the_settings() -> None:
    config = json.loads((ROOT / "deploy" / "emulators" / "Config.json").read_text())
    [namespace] = config["UserConfig"]["Namespaces"]
    [topic] = namespace["Topics"]
    [subscription] = topic["Subscriptions"]
    assert (topic["Name"], subscription["Name"]) == (
        SAMPLE["SERVICEBUS_TOPIC"],
        SAMPLE["SERVICEBUS_SUBSCRIPTION"],
    )
    assert topic["Properties"]["RequiresDuplicateDetection"] is True
    assert subscription["Properties"]["RequiresSession"] is True


def test_flex_consumption_is_not_given_what_it_refuses() -> None:
    """https://learn.microsoft.com/azure/azure-functions/functions-app-settings#flex-consumption-plan"""
    refused = {"FUNCTIONS_WORKER_RUNTIME", "WEBSITE_RUN_FROM_PACKAGE", "FUNCTIONS_EXTENSION_VERSION"}
    assert not refused & set(MAIN.objects("appSettings"))


DEPLOYED = {
    "application",
    "changefeed",
    "domain",
    "function_app.py",
    "host.json",
    "infra",
    "requirements.txt",
}


def matches(entry: Path, patterns: list[str]) -> bool:
    return any(Path(entry.name).match(pattern.rstrip("/")) for pattern in patterns)


def test_a_package_holds_the_app_and_nothing_else() -> None:
    ignored = (ROOT / ".funcignore").read_text().split()
    private = (ROOT / ".gitignore").read_text().split()
    for entry in sorted(ROOT.iterdir()):
        if entry.name not in DEPLOYED and not matches(entry, private):
            assert matches(entry, ignored), entry.name
    assert not DEPLOYED & {pattern.rstrip("/") for pattern in ignored}
