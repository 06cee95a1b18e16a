"""A command that is started with a Python without our packages says in one line what to do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cosmos_outbox.cli import installed
from cosmos_outbox.cli.main import PARTS
from tests.support.paths import ROOT

NOT_OURS = ("pytest", "ruff", "mypy", "devstack")
"""Python itself says in one line that one of these is missing; devstack is a project of its own."""
COMMANDS = {
    *(f"cosmos_outbox {part}" for part in PARTS),
    "tools.events",
    "tools.openapi",
} | {
    name
    for name in re.findall(r"-m ([\w.]+)", (ROOT / "Makefile").read_text())
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
    assert ended.returncode == installed.EXIT_CODE
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert str(empty_python) in line
    assert "azure-cosmos" in line
    assert "make venv" in line
    assert re.search(r"pip install -r requirements(-dev)?\.txt$", line)


def test_the_local_data_can_be_removed_before_anything_is_installed(
    empty_python: Path, tmp_path: Path
) -> None:
    (tmp_path / "cosmos").mkdir()
    ended = subprocess.run(
        ["make", "clean"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": str(empty_python), "DEVSTACK_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "cosmos").exists()


def test_the_required_modules_are_those_of_the_requirements_files() -> None:
    named = {
        name
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        for name in re.findall(r"^[a-z][\w-]*", line)
    }
    needed = set(installed.REQUIRED["requirements.txt"].values())
    assert needed - {"email-validator"} == named, "email-validator comes with pydantic[email]"


def run(python: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
