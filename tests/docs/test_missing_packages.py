"""A command that is started with a Python without our packages says in one line what to do."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from cosmos_outbox.cli.main import RUN_TIME, UNUSABLE
from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.settings import errors
from cosmos_outbox.settings.errors import Misconfigured
from tests.support.paths import ROOT
from tests.support.statements import statements

NOT_OURS = ("pytest", "ruff", "mypy", "devstack", "outbox_simulation")
"""Python itself says in one line that one of these is missing; the last two are projects of their own."""
COMMANDS = {
    *(
        f"cosmos_outbox {part}" for part in ("relay", "subscriber")
    ),  # with an extra and without: all are one way
    "tools.events",
    "tools.openapi",
} | {
    name
    for name in re.findall(r"\$\(BIN\) -m ([\w.]+)", (ROOT / "Makefile").read_text())
    if name.partition(".")[0] not in NOT_OURS
}


@pytest.fixture(scope="module")
def empty_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the standard library and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_says_which_package_is_missing_and_what_to_run(empty_python: Path, command: str) -> None:
    ended = run(empty_python, "-m", *command.split())
    assert ended.returncode == UNUSABLE
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert str(empty_python) in line
    assert "azure-cosmos" in line
    assert "make venv" in line
    assert re.search(r"pip install -r requirements(-dev)?\.txt$", line)


def test_the_required_modules_are_those_of_the_requirements_files() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    needed = set(RUN_TIME.values())
    ours = {"cosmos-changefeed"}  # a folder beside the app
    assert needed - ours - {"email-validator"} == packages(lines), (
        "email-validator comes with pydantic[email]"
    )


def test_a_reader_of_the_feed_gets_the_name_of_the_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cosmos_changefeed", None)
    with pytest.raises(Misconfigured, match=r"cosmos-changefeed.* not installed; .*cosmos-outbox\[relay\]"):
        getattr(changefeed, "session_lsn")  # noqa: B009 - a type checker takes it for one that is there


def test_what_the_library_needs_is_what_installing_it_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(errors.CORE.values()) == packages(project["dependencies"])
    brought = {name: packages(lines) for name, lines in project["optional-dependencies"].items()}
    for name, lines in project["optional-dependencies"].items():
        for other in re.findall(r"^cosmos-outbox\[(\w+)\]", "\n".join(lines), re.MULTILINE):
            brought[name] |= brought[other]  # each names what stands above it
    assert {name: set(modules.values()) for name, modules in errors.EXTRAS.items()} == {
        name: needed - {"cosmos-outbox"} for name, needed in brought.items()
    }


@pytest.mark.parametrize(
    ("package", "extra"),
    [
        ("storagequeue", "storagequeue"),
        ("servicebus", "servicebus"),
        ("functions", "functions"),
        ("http.fastapi", "fastapi"),
    ],
)
def test_a_part_that_is_not_installed_names_what_brings_it(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = importlib.import_module(f"cosmos_outbox.{package}")
    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    with pytest.raises(Misconfigured, match=rf"cosmos-outbox\[{extra}\]"):
        importlib.reload(part)


def test_each_package_that_the_library_imports_is_one_that_it_asks_for() -> None:
    modules = errors.CORE | {
        each: package for some in errors.EXTRAS.values() for each, package in some.items()
    }
    known = [
        *modules,
        "pydantic_core",  # pydantic's own
        "azure.core",  # of all of Azure's SDKs
        "starlette",  # FastAPI's own
        "pytest",  # runs the contract of a store, which nothing else imports
        "opentelemetry",  # the API; what is exported is named in full
        *sys.stdlib_module_names,
        "cosmos_outbox",
    ]
    imported = {
        name
        for file in (ROOT / "cosmos_outbox").rglob("*.py")
        for node in statements(ast.parse(file.read_text()))
        for name in _imported(node)
    }
    assert not [name for name in imported if not any(f"{name}.".startswith(f"{each}.") for each in known)]


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{each.name}" for each in node.names]
    return [each.name for each in node.names] if isinstance(node, ast.Import) else []


def packages(lines: Iterable[str]) -> set[str]:
    """The names of requirements."""
    return {name for line in lines for name in re.findall(r"^[a-z][\w-]*", line)}


def run(python: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
