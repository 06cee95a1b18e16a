"""Imports point one way, and only one folder knows each vendor."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {
    "function_app",
    "outbox",
    "inbox",
    "domain",
    "application",
    "infra",
    "changefeed",
    "devstack",
    "tests",
    "tools",
    "examples",
}
EXAMPLES = sorted(f"examples/{file.parent.name}" for file in ROOT.glob("examples/*/__init__.py"))
MAY_IMPORT = {
    "outbox": {"outbox"},
    "inbox": {"inbox"},
    "domain": {"domain", "outbox"},
    "application": {"application", "domain", "outbox", "inbox"},
    "infra": {"infra", "application", "domain", "outbox", "inbox", "changefeed"},
    "changefeed": {"changefeed"},
    "packages/devstack/src/devstack": {"devstack", "changefeed"},
    "function_app.py": {"infra", "application", "domain", "outbox", "inbox"},
    **{place: {"examples", "infra", "outbox", "inbox"} for place in EXAMPLES},
}


GENERIC = [
    "outbox", "inbox", "changefeed", "infra/cosmos", "infra/servicebus", "infra/http", "infra/credentials.py",
    "infra/erasing.py", "infra/errors.py", "infra/expiry.py", "infra/preflight",
    "infra/probes.py", "infra/read_model.py", "infra/relay_feed.py",
    "infra/relay_status.py", "infra/relay_worker.py", "infra/republish.py", "infra/shedding.py",
    "infra/subscriber.py", "infra/subscriber_worker.py", "infra/telemetry", "infra/wire_names.py", "infra/wiring.py",
    "infra/worker.py",
]  # fmt: skip


def modules(place: str) -> list[Path]:
    path = ROOT / place
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert found, f"{place} is gone: mend this test"
    return found


def imports(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports out"
            yield node.module or ""


@pytest.mark.parametrize("place", MAY_IMPORT)
def test_imports_point_one_way(place: str) -> None:
    for module in modules(place):
        ours = {name.partition(".")[0] for name in imports(module)} & OURS
        assert ours <= MAY_IMPORT[place], f"{module} imports {ours - MAY_IMPORT[place]}"


@pytest.mark.parametrize("place", EXAMPLES)
def test_an_example_imports_no_other_example(place: str) -> None:
    home = place.replace("/", ".")
    for module in modules(place):
        others = [
            name
            for name in imports(module)
            if name.startswith("examples.") and not f"{name}.".startswith(f"{home}.")
        ]
        assert not others, f"{module} imports {others}; import it from {home}"


def test_the_domain_is_pure_python_and_pydantic() -> None:
    allowed = set(sys.stdlib_module_names) | {"domain", "outbox", "pydantic", "email_validator"}
    for module in modules("domain"):
        assert {name.partition(".")[0] for name in imports(module)} <= allowed


def test_the_domain_uses_the_aggregate_and_the_event_and_nothing_else_of_the_outbox() -> None:
    for module in modules("domain"):
        used = {name for name in imports(module) if name.startswith("outbox")}
        assert used <= {"outbox.aggregate", "outbox.event"}, module


@pytest.mark.parametrize("place", GENERIC)
def test_code_for_any_aggregate_does_not_speak_of_contacts(place: str) -> None:
    for module in modules(place):
        assert "contact" not in module.read_text().lower(), module


@pytest.mark.parametrize("place", ["outbox", "inbox", "domain", "application"])
def test_the_core_knows_no_vendor(place: str) -> None:
    for module in modules(place):
        assert not [name for name in imports(module) if name.startswith("azure")], module


@pytest.mark.parametrize("place", ["outbox", "inbox"])
def test_the_core_counts_with_the_api_alone_and_in_one_module(place: str) -> None:
    used = {
        (module.stem, name)
        for module in modules(place)
        for name in imports(module)
        if "opentelemetry" in name
    }
    assert used == {("telemetry", "opentelemetry.metrics")}


@pytest.mark.parametrize(
    ("vendor", "home"), [("azure.cosmos", "infra/cosmos"), ("azure.servicebus", "infra/servicebus")]
)
def test_a_vendors_sdk_is_imported_in_one_folder(vendor: str, home: str) -> None:
    for module in modules("infra") + modules("function_app.py"):
        if any(name.startswith(vendor) for name in imports(module)):
            assert (ROOT / home) in module.parents, module


@pytest.mark.parametrize("place", [*GENERIC, "packages/devstack/src/devstack"])
def test_nothing_but_the_example_knows_about_orders(place: str) -> None:
    for module in modules(place):
        assert not re.search(r"examples\.orders|order_?id\b|order-events|\bOrder[A-Z]", module.read_text()), (
            module
        )


def test_the_example_runs_without_the_contact_service() -> None:
    program = "import sys, examples.orders.function_app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not [name for name in loaded if name.partition(".")[0] in {"domain", "application"}]
    assert "infra.contacts" not in loaded


def test_adapters_know_nothing_of_preflight() -> None:
    for module in modules("infra") + modules("function_app.py"):
        if (ROOT / "infra" / "preflight") not in module.parents:
            assert not [name for name in imports(module) if name.startswith("infra.preflight")], module
