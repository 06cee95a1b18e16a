"""Bicep, the sample, the app and the README have the same settings."""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path

from cosmos_outbox.cli import init
from cosmos_outbox.http.request import MAX_BODY_BYTES
from cosmos_outbox.settings.transports import servicebus_of
from infra.bootstrap import DIRECTORY
from infra.bootstrap import service as contact_service
from tests.deploy import bicep
from tests.support.functions import functions
from tests.support.paths import ROOT

SAMPLE: dict[str, str] = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
IN_AZURE = bicep.settings()

OF_THE_HOST = {"AzureWebJobsStorage", "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"}
"""What the host reads."""
TELEMETRY = {"APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"}
ELSEWHERE = {
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_METRICS_EXPORTER",
}
"""Telemetry goes to Application Insights in Azure, and from a laptop only if somebody wants it to."""
CHOSEN = {"TRANSPORT", "SERVICEBUS_QUEUE"}
"""A deployment says so in any case."""
OTHER_TRANSPORTS = {
    "STORAGEQUEUE",
    "STORAGEQUEUE_QUEUES",
    "STORAGEQUEUE_ENCODING",
} | {
    "WEBHOOK_URL",
    "WEBHOOK_SECRETS",
    "WEBHOOK_CONCURRENCY",
    "WEBHOOK_SECONDS",
    "WEBHOOK_PRIVATE",
}
"""The app is deployed with a topic of Service Bus, and needs the settings of nothing else."""
BY_THE_PLATFORM = {"WEBSITE_AUTH_ENABLED"}
"""App Service sets it, and nobody else may."""
LOCAL_ONLY = {"FUNCTIONS_WORKER_RUNTIME"}
"""Flex Consumption refuses it.
https://learn.microsoft.com/azure/azure-functions/functions-app-settings#flex-consumption-plan
"""


def connections(names: Iterable[str]) -> set[str]:
    """The settings, the fields of one connection taken together."""
    return {name.partition("__")[0] for name in names}


def read_by_the_app() -> set[str]:
    """What the triggers name as a connection, what the service names, and what the library's settings read."""
    bindings = [
        text
        for function in functions().values()
        for binding in function.get_bindings()
        for text in binding.get_dict_repr().items()
    ]
    of_triggers = {text for key, text in bindings if key.lower().endswith("connection")}
    settings = ROOT / "cosmos_outbox" / "settings"
    source = "".join((settings / name).read_text() for name in ("environment.py", "transports.py"))
    names = {each.setting for each in contact_service.names.all.values()}
    names |= {
        each.setting for of in contact_service.subscribers for each in (of.subscription, of.container) if each
    }
    return of_triggers | names | set(re.findall(r'environment(?:\.get\(|,)\s*"([A-Z_]+)"', source))


def in_the_documentation() -> set[str]:
    page = (ROOT / "docs" / "use" / "settings.md").read_text()
    table = page.partition("## The app")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name.partition("__")[0] for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_app_sample_bicep_and_documentation_name_the_same_settings() -> None:
    expected = read_by_the_app()
    used = expected - OTHER_TRANSPORTS
    assert (
        connections(SAMPLE)
        == used - CHOSEN - BY_THE_PLATFORM - TELEMETRY - ELSEWHERE | OF_THE_HOST | LOCAL_ONLY
    )
    assert connections(IN_AZURE) == used - BY_THE_PLATFORM - ELSEWHERE | OF_THE_HOST | TELEMETRY
    assert in_the_documentation() == expected | OF_THE_HOST


def test_the_hosts_body_limit_is_twice_that_of_the_app() -> None:
    """What is a little longer the app answers itself, and says how long a body may be."""
    limits = {
        SAMPLE["FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"],
        IN_AZURE["FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"].strip("'"),
    }
    assert limits == {str(2 * MAX_BODY_BYTES)}


def test_every_sample_of_a_function_app_has_what_its_host_reads(tmp_path: Path) -> None:
    """Also the sample of a service that ``cosmos-outbox init`` writes."""
    assert init.main(["bookings", "--into", str(tmp_path / "bookings")]) == 0
    apps = [*(ROOT / "examples").glob("*/function_app.py"), tmp_path / "bookings" / "function_app.py"]
    assert len(apps) > 2
    for app in apps:
        sample = json.loads((app.parent / "local.settings.sample.json").read_text())["Values"]
        assert set(sample) >= OF_THE_HOST | LOCAL_ONLY, app


def test_the_settings_of_bicep_are_the_samples_with_an_identity() -> None:
    here, there = contact_service.settings(SAMPLE), contact_service.settings(bicep.evaluated(IN_AZURE))
    for connection, name in (
        (there.cosmos, "COSMOS"),
        (servicebus_of(there.transport).connection, "SERVICEBUS"),
    ):
        assert connection.connection_string is None
        assert connection.managed_identity_only
        assert connection.client_id == f"made-up-{name}__clientId"
    for name in (
        "cosmos_database",
        "cosmos_container",
        "cosmos_lease_container",
        "cosmos_parked_container",
        "cosmos_set_aside_container",
        "cosmos_claim_container",
        "event_ttl_seconds",
        "idempotency_ttl_seconds",
    ):
        assert getattr(there, name) == getattr(here, name), name
    assert servicebus_of(there.transport).topic == servicebus_of(here.transport).topic
    assert servicebus_of(there.transport).partitioned is servicebus_of(here.transport).partitioned
    for named in (DIRECTORY.subscription, DIRECTORY.container):
        assert there.name(named) == here.name(named), named.setting


def test_the_emulator_has_the_topic_and_subscription_of_the_settings() -> None:
    config = json.loads((ROOT / "deploy" / "emulators" / "Config.json").read_text())
    [namespace] = config["UserConfig"]["Namespaces"]
    [topic] = namespace["Topics"]
    [subscription] = topic["Subscriptions"]
    assert (topic["Name"], subscription["Name"]) == (
        SAMPLE["SERVICEBUS_TOPIC"],
        SAMPLE["SERVICEBUS_SUBSCRIPTION"],
    )


def imported(module: Path) -> set[str]:
    """The first names of what a module imports."""
    nodes = list(ast.walk(ast.parse(module.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def deployable() -> set[str]:
    """What a package must hold: function_app.py, the folders that its imports lead to, and what the host reads."""
    found, left = set(), {"function_app"}
    while left:
        name = left.pop()
        entry = f"{name}.py" if (ROOT / f"{name}.py").exists() else name
        if entry in found or not (ROOT / entry).exists():
            continue
        found.add(entry)
        modules = [ROOT / entry] if entry.endswith(".py") else (ROOT / entry).rglob("*.py")
        left |= {name for module in modules for name in imported(module)}
    return found | {"host.json", "requirements.txt"}


def test_a_package_holds_the_app_and_nothing_else() -> None:
    def matches(name: str, patterns: list[str]) -> bool:
        return any(Path(name).match(pattern.rstrip("/")) for pattern in patterns)

    ignored, private = ((ROOT / file).read_text().split() for file in (".funcignore", ".gitignore"))
    packaged = {entry.name for entry in ROOT.iterdir() if not matches(entry.name, ignored)}
    assert {name for name in packaged if not matches(name, private)} == deployable()


def test_each_signal_of_telemetry_has_one_exporter() -> None:
    """Decision 20: with either of these the host drops the log lines that the worker hands it."""
    assert not {"PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY", "PYTHON_ENABLE_OPENTELEMETRY"} & set(IN_AZURE)
    host = json.loads((ROOT / "host.json").read_text())
    assert host["telemetryMode"] == "OpenTelemetry"
