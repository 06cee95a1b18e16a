"""Imports inside devstack point one way: between its services, and between the rooms of its Cosmos DB."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import cosmos_changefeed as changefeed
import devstack

DEVSTACK = Path(devstack.__file__).parent
COSMOS = DEVSTACK / "cosmos"
ROOMS = {
    "protocol": set[str](),
    "wire": {"protocol"},
    "storage": {"protocol"},
    "resources": {"protocol", "storage", "wire"},
    "query": {"protocol", "resources", "storage", "wire"},
    "items": {"protocol", "query", "resources", "storage", "wire"},
    "feed": {"protocol", "resources", "storage", "wire"},
}
"""What each room of the Cosmos DB may import, besides itself."""

SHARED = {
    "azurite",
    "connection_settings",
    "fault_api",
    "http_server",
    "local_settings",
    "service",
    "http_in_memory",
    "sqlite_file",
}
"""Modules beside the services that the services may use."""


@cache
def imported(module: Path) -> tuple[str, ...]:
    """The full names of the modules and names that ``module`` imports."""
    return tuple(_imported(module))


def _imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports out"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def parts_of(package: str, module: Path) -> set[str]:
    """The first names below ``package`` that ``module`` imports."""
    prefix = f"{package}."
    return {name[len(prefix) :].split(".")[0] for name in imported(module) if name.startswith(prefix)}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_the_cosmos_db_imports_only_rooms_below_it(room: str) -> None:
    modules = sorted((COSMOS / room).rglob("*.py"))
    assert modules
    for module in modules:
        allowed = ROOMS[room] | {room}
        assert parts_of("devstack.cosmos", module) <= allowed, module


def test_every_room_says_what_it_guarantees() -> None:
    rooms = {folder.name for folder in COSMOS.iterdir() if (folder / "__init__.py").exists()}
    assert rooms == set(ROOMS)
    for room in rooms:
        assert ast.get_docstring(ast.parse((COSMOS / room / "__init__.py").read_text())), room


@pytest.mark.parametrize("service", ["cosmos", "servicebus", "storage", "functions"])
def test_a_service_does_not_import_another(service: str) -> None:
    for module in (DEVSTACK / service).rglob("*.py"):
        assert parts_of("devstack", module) <= {service, *SHARED}, module


@pytest.mark.parametrize("service", ["cosmos", "servicebus"])
def test_a_server_does_not_use_the_sdk_that_it_is_there_to_test(service: str) -> None:
    for module in (DEVSTACK / service).rglob("*.py"):
        assert not [name for name in imported(module) if name.startswith("azure")], module


def test_what_runs_does_not_need_the_test_kit() -> None:
    for module in DEVSTACK.rglob("*.py"):
        if "testing" not in module.relative_to(DEVSTACK).parts:
            assert "testing" not in parts_of("devstack", module), module


def test_changefeed_knows_nothing_of_devstack() -> None:
    for module in Path(changefeed.__file__).parent.glob("*.py"):
        assert not [name for name in imported(module) if name.startswith("devstack")], module


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports for type checkers count: who is named in a signature is known."""
    modules = {
        ".".join(file.relative_to(DEVSTACK.parent).with_suffix("").parts).removesuffix(".__init__"): file
        for file in DEVSTACK.rglob("*.py")
    }
    known = {
        name: {each for each in _candidates(file) if each in modules and each != name}
        for name, file in modules.items()
    }
    for _ in modules:
        leaves = {name for name, imports in known.items() if not imports}
        known = {name: imports - leaves for name, imports in known.items() if name not in leaves}
        if not leaves:
            break
    assert known == {}, "each of these is in a circle of imports, or imports one that is"


def _candidates(module: Path) -> Iterator[str]:
    """The modules that an import may mean: ``from a.b import c`` names ``a.b.c``, or ``c`` in ``a.b``."""
    for name in imported(module):
        yield name
        yield name.rpartition(".")[0]
