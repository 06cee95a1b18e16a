"""The options of a user's pytest reach ``simulate``, and the command that it prints does run it again."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import python_path

TEST = """
from test_simulate_elsewhere import book, declared
from outbox_simulation import simulate, simulating

simulating._SHRINKING_RUNS = 1  # how short a story gets is none of the options' affair

def test_it():
    service = declared()

    async def wrong(luck, at):
        await book(service, luck, result=9)

    simulate(service, wrong, seeds=1)
"""


def ended(folder: Path, *arguments: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(TEST)
    command = [
        sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), "-c", "/dev/null",
        "-p", "outbox_simulation.plugin", *arguments,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=folder,
        # To import the other plugins takes half a second, and this test needs none.
        env={
            "PYTHONPATH": python_path(),
            "PATH": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_so_many_seeds_as_are_asked_for(tmp_path: Path) -> None:
    assert ended(tmp_path, "--simulate-seeds=0")[0] == 0
    code, result = ended(tmp_path)
    assert (code, "seed 1: read model: rows" in result) == (1, True), result


@pytest.mark.long  # make test itself asks for seeds by an option
def test_the_one_seed_that_is_asked_for_is_the_one_that_a_finding_names(tmp_path: Path) -> None:
    code, result = ended(tmp_path, "--simulate-seed=2")
    assert (code, "seed 2: read model: rows" in result) == (1, True), result
    again = re.search(r"run again +python -m pytest (.*)", result)
    assert again
    assert shlex.split(again[1]) == ["--simulate-seed=2", "test_it.py::test_it"]


def test_the_options_are_in_the_help(tmp_path: Path) -> None:
    code, result = ended(tmp_path, "--help")
    assert code == 0
    for option in ("--simulate-seeds=N", "--simulate-seed=SEED", "--simulate-write-forms"):
        assert option in result
