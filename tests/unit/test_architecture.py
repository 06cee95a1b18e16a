"""Imports point one way, between folders as between files, and only one folder knows each vendor.

Everything here is computed from the imports; what is written down is the table of floors.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.support.statements import statements

ROOT = Path(__file__).resolve().parents[2]

FLOORS: Sequence[tuple[str, ...]] = (
    ("function_app", "examples", "tools"),
    ("infra",),
    ("application",),
    ("domain",),
    ("packages/simulation/src/outbox_simulation",),
    ("cosmos_outbox",),
    ("cosmos_outbox/testing",),
    ("cosmos_outbox/cli",),
    (
        "cosmos_outbox/worker",
        "cosmos_outbox/functions",
        "cosmos_outbox/http",
        "cosmos_outbox/preflight",
        "cosmos_outbox/contracts",
    ),
    ("cosmos_outbox/service",),
    ("cosmos_outbox/composition",),
    ("cosmos_outbox/operations",),
    (
        "cosmos_outbox/cosmos",
        "cosmos_outbox/servicebus",
        "cosmos_outbox/webhook",
        "cosmos_outbox/storagequeue",
        "cosmos_outbox/blobs",
        "cosmos_outbox/sources",
    ),
    ("cosmos_outbox/lists",),
    ("cosmos_outbox/telemetry",),
    ("cosmos_outbox/settings",),
    ("cosmos_outbox/outbox", "cosmos_outbox/inbox"),
    ("cosmos_outbox/kernel",),
    ("packages/devstack/src/devstack",),
    ("cosmos_changefeed",),
)
"""From the top down: a folder imports from its own floor and from those below. CONTRIBUTING.md says what is where."""

ONLY: Mapping[str, tuple[str, ...]] = {
    "examples": ("examples", "cosmos_outbox"),
    "application": (
        "application",
        "domain",
        "cosmos_outbox.outbox",
        "cosmos_outbox.inbox",
        "cosmos_outbox.kernel",
    ),
    "domain": ("domain", "cosmos_outbox.outbox.aggregate", "cosmos_outbox.outbox.event"),
    "cosmos_outbox/outbox": ("cosmos_outbox.outbox", "cosmos_outbox.kernel"),
    "cosmos_outbox/inbox": ("cosmos_outbox.inbox", "cosmos_outbox.kernel"),
    "cosmos_outbox/kernel": ("cosmos_outbox.kernel",),
    "packages/devstack/src/devstack": ("devstack", "cosmos_changefeed"),
    "cosmos_changefeed": ("cosmos_changefeed",),
}
"""Folders that import less of ours than their floor lets them."""

HOMES: Mapping[str, tuple[str, ...]] = {
    "azure.cosmos": ("cosmos_outbox/cosmos", "cosmos_changefeed"),
    "azure.servicebus": ("cosmos_outbox/servicebus",),
    "standardwebhooks": ("cosmos_outbox/webhook", "examples"),
    "azure.storage": ("cosmos_outbox/blobs", "cosmos_outbox/storagequeue", "examples"),
    "azure.functions": ("cosmos_outbox/functions", "function_app", "examples"),
    "fastapi": ("cosmos_outbox/http", "examples"),
    "starlette": ("cosmos_outbox/http",),
    "opentelemetry.sdk": ("cosmos_outbox/telemetry",),
}
"""Each vendor's SDK, and the folders of deployed code that know it."""

DEPLOYED = (
    "function_app",
    "infra",
    "application",
    "domain",
    "cosmos_outbox",
    "cosmos_changefeed",
    "examples",
)
LIBRARY = ("cosmos_outbox", "cosmos_changefeed")
EXAMPLES = sorted(f"examples/{file.parent.name}" for file in ROOT.glob("examples/*/__init__.py"))

_MOST_LINES_OF_INFRA, _MOST_MODULES_OF_INFRA = 700, 10


def not_deployed() -> list[str]:
    """The folders of the library that .funcignore leaves out: they are for a user's tests."""
    names = (ROOT / ".funcignore").read_text().split()
    packages = [file.parent.name for file in sorted(ROOT.glob("cosmos_outbox/*/__init__.py"))]
    return [f"cosmos_outbox/{each}" for each in packages if f"{each}/" in names]


def deployed(place: str) -> list[Path]:
    """The modules of a folder that are deployed."""
    outside = tuple(f"{each}/" for each in not_deployed())
    return [each for each in files(place) if not f"{folder_of(each)}/".startswith(outside)]


def files(place: str) -> list[Path]:
    """The modules of a folder, or the module of this name; an example's own tests are none."""
    path = ROOT / place
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    found = [each for each in found if "tests" not in each.relative_to(ROOT).parts]
    assert found, f"{place} is gone: mend the table"
    return found


@cache
def modules() -> Mapping[str, Path]:
    """Every module of ours that is on a floor, by the name by which it is imported."""
    found = {}
    for place in sorted({each.partition("/")[0] for floor in FLOORS for each in floor} - {"packages"}):
        for file in files(place):
            found[_name(file.relative_to(ROOT))] = file
    for place in ("packages/devstack/src/devstack", "packages/simulation/src/outbox_simulation"):
        found |= {_name(file.relative_to((ROOT / place).parent)): file for file in files(place)}
    return found


def _name(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


@cache
def faces() -> Mapping[str, Mapping[str, str]]:
    """The library's public modules: the root and those beside it that say what they export, each name with its home.

    A name's home is what the module imports it from, or the module itself.
    """
    found = {}
    for name, file in modules().items():
        if name.partition(".")[0] != "cosmos_outbox" or name.count(".") > 1:
            continue
        tree = ast.parse(file.read_text())
        exported = [each.value for each in tree.body if _assigns(each, "__all__")]
        if exported:
            homes = {
                alias.name: node.module or ""
                for node in statements(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            found[name] = {each: homes.get(each, name) for each in ast.literal_eval(exported[0])}
    return found


def _assigns(node: ast.stmt, name: str) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


@cache
def imported(file: Path) -> frozenset[str]:
    """What a file imports, wherever in it that stands: modules by their full names, names in them as they are.

    A name of the public face counts as an import of the face and of its home.
    """
    found = set()
    for node in statements(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: write imports out"
            home = node.module or ""
            whole = {f"{home}.{each.name}" for each in node.names}
            found |= {each if each in modules() else home for each in whole} | (whole & modules().keys())
            exported = {} if whole <= modules().keys() else faces().get(home, {})
            found |= {exported[each.name] for each in node.names if each.name in exported}
    return frozenset(found)


def folder_of(file: Path) -> str:
    """The folder that a module is in; a module on the top level, or in the library's, is a folder of its own."""
    relative = file.relative_to(ROOT)
    own = relative.parent.as_posix() in (".", "cosmos_outbox") and relative.stem != "__init__"
    return relative.with_suffix("").as_posix() if own else relative.parent.as_posix()


def floor_of(file: Path) -> int:
    """How far down: the longest entry of the table decides."""
    folder = folder_of(file)
    fitting = [
        (len(each), number)
        for number, floor in enumerate(FLOORS)
        for each in floor
        if f"{folder}/".startswith(f"{each}/")
    ]
    assert fitting, f"{folder} is on no floor: add it to FLOORS"
    return max(fitting)[1]


def edges() -> Iterator[tuple[Path, Path]]:
    """Each import of one module of ours by another."""
    for file in modules().values():
        for name in imported(file):
            if name in modules():
                yield file, modules()[name]


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that reach each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def is_within(name: str, roots: Sequence[str]) -> bool:
    return any(f"{name}.".startswith(f"{root}.") for root in roots)


def test_every_module_is_on_a_floor_and_imports_point_down() -> None:
    up = [
        f"{file.relative_to(ROOT)} imports {other.relative_to(ROOT)}"
        for file, other in edges()
        if floor_of(other) < floor_of(file)
    ]
    assert not up, up


@pytest.mark.parametrize("place", ONLY)
def test_some_folders_import_less_than_their_floor_lets_them(place: str) -> None:
    for file in files(place):
        ours = {name for name in imported(file) if name in modules() and name not in faces()}
        others = {name for name in ours if not is_within(name, ONLY[place])}
        assert not others, f"{file.relative_to(ROOT)} imports {sorted(others)}"


def test_no_folders_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for file, other in edges():
        here, there = folder_of(file), folder_of(other)
        if here != there:
            graph.setdefault(here, set()).add(there)
    assert circles(graph) == []


def test_no_modules_of_deployed_code_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for file, other in edges():
        if file.relative_to(ROOT).with_suffix("").parts[0] in DEPLOYED:
            graph.setdefault(str(file.relative_to(ROOT)), set()).add(str(other.relative_to(ROOT)))
    assert circles(graph) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize("place", EXAMPLES)
def test_an_example_imports_no_other_example(place: str) -> None:
    home = place.replace("/", ".")
    for file in files(place):
        others = [
            name for name in imported(file) if is_within(name, ["examples"]) and not is_within(name, [home])
        ]
        assert not others, f"{file} imports {others}; import it from {home}"


@cache
def classes_of(file: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)]


def test_a_protocol_has_two_implementations_or_types_a_callable() -> None:
    places = [*LIBRARY, "examples"]  # a reference adapter is an implementation
    classes = {node.name: node for place in places for file in files(place) for node in classes_of(file)}

    def bases(node: ast.ClassDef) -> list[str]:
        return [ast.unparse(each).partition("[")[0].rpartition(".")[2] for each in node.bases]

    def members(node: ast.ClassDef) -> set[str]:
        inherited = [classes[each] for each in bases(node) if each in classes]
        own = {getattr(each, "name", "") or ast.unparse(getattr(each, "target", each)) for each in node.body}
        return own.union(*map(members, inherited))

    ours = {node.name for place in LIBRARY for file in files(place) for node in classes_of(file)}
    protocols = {name: classes[name] for name in ours if "Protocol" in bases(classes[name])}
    assert "Publisher" in protocols
    for name, node in protocols.items():
        asked = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        found = [each for each, other in classes.items() if each not in protocols and asked <= members(other)]
        assert asked == {"__call__"} or len(found) > 1, f"{name} is a port with one adapter: {found}"


def test_the_domain_is_pure_python_and_pydantic() -> None:
    allowed = set(sys.stdlib_module_names) | {
        "domain", "cosmos_outbox", "pydantic", "pydantic_core", "email_validator",
    }  # fmt: skip
    for file in files("domain"):
        assert {name.partition(".")[0] for name in imported(file)} <= allowed


def test_the_library_does_not_speak_of_contacts() -> None:
    """What says "contact" or "directory" belongs to domain, application or infra."""
    for file in sorted((ROOT / "cosmos_outbox").rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            lines = file.read_text().splitlines()
            word = re.compile(r"contact|(?<!path_not_)director(?:y|ies)\b", re.IGNORECASE)
            said = [each for each in lines if word.search(each)]
            assert not said, f"{file.relative_to(ROOT)}: {said}"


@pytest.mark.parametrize("place", [*LIBRARY, "packages/devstack/src/devstack"])
def test_nothing_but_the_example_knows_about_orders(place: str) -> None:
    for file in files(place):
        said = re.findall(r"examples\.orders|order_?id\b|order-events|\bOrder[A-Z]\w*", file.read_text())
        assert not said, f"{file.relative_to(ROOT)}: {said}"


def test_what_is_the_contacts_own_stays_small() -> None:
    own = [file for file in files("infra") if file.name != "__init__.py"]
    lines = sum(len(file.read_text().splitlines()) for file in own)
    advice = "what says nothing of contacts belongs to cosmos_outbox"
    assert len(own) <= _MOST_MODULES_OF_INFRA, f"infra has {len(own)} modules: {advice}"
    assert lines <= _MOST_LINES_OF_INFRA, f"infra has {lines} lines: {advice}"


@pytest.mark.parametrize("place", ["cosmos_outbox/outbox", "cosmos_outbox/inbox", "domain", "application"])
def test_the_core_knows_no_vendor(place: str) -> None:
    for file in files(place):
        assert not [name for name in imported(file) if is_within(name, ["azure"])], file


@pytest.mark.parametrize("place", ["cosmos_outbox/outbox", "cosmos_outbox/inbox"])
def test_the_core_counts_with_the_api_alone_and_in_one_module(place: str) -> None:
    used = {(file.stem, name) for file in files(place) for name in imported(file) if "opentelemetry" in name}
    assert used == {("telemetry", "opentelemetry.metrics")}


@pytest.mark.parametrize("vendor", HOMES)
def test_a_vendors_sdk_is_imported_in_its_folder_alone(vendor: str) -> None:
    for file in (each for place in DEPLOYED for each in deployed(place)):
        if any(is_within(name, [vendor]) for name in imported(file)):
            home = f"{folder_of(file)}/"
            assert home.startswith(tuple(f"{each}/" for each in HOMES[vendor])), file.relative_to(ROOT)


def test_deployed_code_knows_nothing_of_what_is_not_deployed() -> None:
    left_out = [each.replace("/", ".") for each in not_deployed()]
    assert left_out == ["cosmos_outbox.testing"]
    left_out += ["devstack", "outbox_simulation", "tests", "tools"]
    for file in (each for place in DEPLOYED for each in deployed(place)):
        others = [name for name in imported(file) if is_within(name, left_out)]
        assert not others, f"{file.relative_to(ROOT)} imports {others}"


WIRED = """
import asyncio
from cosmos_outbox import Names, Service

service = Service("things", aggregates=[], names=Names(database="d", container="c", topic="t"))

async def main():
    wired = service.wire({"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5", "SERVICEBUS": "Endpoint=sb://b"})
    await wired.outbox.resources.aclose()

asyncio.run(main())
"""
STAGES = (
    "import cosmos_outbox",
    "import cosmos_outbox.errors",
    "from cosmos_outbox import *",
    WIRED,
    "import examples.orders.function_app",
)


def test_each_step_of_a_program_loads_only_what_it_needs() -> None:
    """Each SDK is imported where it is used first: a program that has only the store installs only the store's SDK."""
    shown = "\nimport sys\nprint(*sys.modules)\n"
    run = subprocess.run(
        [sys.executable, "-c", shown.join((*STAGES, ""))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    root, errors, face, wired, example = (set(line.split()) for line in run.stdout.splitlines())
    vendors = ("azure", "opentelemetry", "pydantic")
    ours = {name for name in root if name.startswith(("cosmos_", *vendors))}
    assert ours == {"cosmos_outbox", "cosmos_outbox.kernel", "cosmos_outbox.kernel.lazy_imports"}
    assert not {name for name in errors if name.startswith(vendors[:2])}
    late = {"azure.functions", "azure.servicebus", "opentelemetry.sdk", "azure.monitor"}
    assert "cosmos_outbox.worker.running" in face, "every name of the root is there"
    assert "azure.cosmos" in wired
    assert not (face | wired) & late
    assert not {name.partition(".")[0] for name in example} & {"domain", "application", "infra"}
