"""Imports point one way, and only the folder made for it knows a vendor."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {
    "function_app",
    "outbox",
    "domain",
    "application",
    "infra",
    "changefeed",
    "devstack",
    "tests",
    "tools",
}
MAY_IMPORT = {
    "outbox": {"outbox"},
    "domain": {"domain", "outbox"},
    "application": {"application", "domain", "outbox"},
    "infra": {"infra", "application", "domain", "outbox", "changefeed"},
    "changefeed": {"changefeed"},
    "packages/devstack/src/devstack": {"devstack", "changefeed"},
    "function_app.py": {"infra", "application", "domain", "outbox"},
}


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


def test_the_domain_is_pure_python_and_pydantic() -> None:
    allowed = set(sys.stdlib_module_names) | {"domain", "outbox", "pydantic", "email_validator"}
    for module in modules("domain"):
        assert {name.partition(".")[0] for name in imports(module)} <= allowed


def test_the_domain_uses_the_aggregate_and_the_event_and_nothing_else_of_the_outbox() -> None:
    for module in modules("domain"):
        used = {name for name in imports(module) if name.startswith("outbox")}
        assert used <= {"outbox.aggregate", "outbox.event"}, module


@pytest.mark.parametrize(
    "place",
    ["outbox", "infra/cosmos", "infra/servicebus", "infra/http", "infra/errors.py", "infra/wire_names.py"],
)
def test_what_is_there_for_any_aggregate_does_not_speak_of_contacts(place: str) -> None:
    for module in modules(place):
        assert "contact" not in module.read_text().lower(), module


@pytest.mark.parametrize("place", ["outbox", "domain", "application"])
def test_the_core_knows_no_vendor(place: str) -> None:
    for module in modules(place):
        assert not [name for name in imports(module) if name.startswith("azure")], module


@pytest.mark.parametrize(
    ("vendor", "home"), [("azure.cosmos", "infra/cosmos"), ("azure.servicebus", "infra/servicebus")]
)
def test_a_vendors_sdk_is_imported_in_one_folder(vendor: str, home: str) -> None:
    for module in modules("infra") + modules("function_app.py"):
        if any(name.startswith(vendor) for name in imports(module)):
            assert (ROOT / home) in module.parents, module
