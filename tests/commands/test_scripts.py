"""The scripts behind the Makefile find a Python and install packages, or say in one line what to do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DEVSTACK = "packages/devstack/pyproject.toml"
TOOLS = ("sh", "cat", "cmp")
"""All that the scripts need of a machine, besides Python."""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A machine without Python: a folder of tools that is all there is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        path = shutil.which(tool)
        assert path, f"no {tool} on this machine"
        (folder / tool).symlink_to(path)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing to install, at a path with a space in it."""
    folder = tmp_path / "my checkout"
    (folder / "scripts").mkdir(parents=True)
    for script in ("bootstrap", "find-python"):
        shutil.copy(ROOT / "scripts" / script, folder / "scripts" / script)
    (folder / "requirements.txt").write_text("")
    (folder / "requirements-run.txt").write_text("-r requirements.txt\n")
    (folder / "requirements-dev.txt").write_text("-r requirements-run.txt\n")
    (folder / "packages" / "devstack").mkdir(parents=True)
    (folder / DEVSTACK).write_text("")
    return folder


def _python(folder: Path, name: str, script: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def _real(folder: Path, name: str) -> Path:
    """The Python that runs the tests, without its virtual environment, under another name."""
    return _python(folder, name, f'exec "{Path(sys.base_prefix) / "bin" / "python3"}" "$@"')


def _run(
    checkout: Path, script: str, path: Path, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(checkout / "scripts" / script), *arguments],
        env={"PATH": str(path), "PIP_NO_INDEX": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_python_one_line_says_what_to_do(checkout: Path, bare: Path) -> None:
    result = _run(checkout, "bootstrap", bare)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("no Python 3.11 to 3.14 with venv found; install one")
    assert result.stderr.count("\n") == 1
    assert not (checkout / ".venv").exists()


def test_a_shim_that_fails_an_old_one_and_one_without_venv_are_passed_over(
    checkout: Path, bare: Path
) -> None:
    _python(bare, "python3.13", 'echo "pyenv: python3.13: command not found" >&2; exit 127')
    _python(bare, "python3.12", 'echo "No module named ensurepip" >&2; exit 1')
    later = bare.parent / "later"
    later.mkdir()
    good = _real(later, "python3.12")
    _real(bare, "python3.11")
    result = subprocess.run(
        [str(checkout / "scripts" / "find-python")],
        env={"PATH": f"{bare}:{later}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{good}\n", "")


@pytest.mark.long
def test_it_installs_once_and_again_when_the_requirements_change(checkout: Path, bare: Path) -> None:
    python = _real(bare, "python3")
    # What is there is no help: it does not run, though it says that all is installed.
    (checkout / ".venv" / "bin").mkdir(parents=True)
    _python(checkout / ".venv" / "bin", "python", "exit 126")
    (checkout / ".venv" / "dev.installed").write_text("-r requirements.txt\n-r requirements-run.txt\n")

    first = _run(checkout, "bootstrap", bare)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[0].startswith(f"Making .venv with {python} (3.")
    assert first.stdout.splitlines()[1].startswith("Installing the packages of requirements-dev.txt")

    for file in ("requirements.txt", "requirements-dev.txt", DEVSTACK):
        os.utime(checkout / file)  # a new date, as after a checkout, is no change
    second = _run(checkout, "bootstrap", bare)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")

    (checkout / "requirements.txt").write_text("surely-not-a-package-of-this-project==1\n")
    third = _run(checkout, "bootstrap", bare)
    assert third.returncode == 1
    assert "Making" not in third.stdout
    assert third.stderr.splitlines()[-1].startswith(
        "could not install the packages: read pip's message above"
    )

    # What failed is tried again, not taken for done.
    assert _run(checkout, "bootstrap", bare).returncode == 1
    (checkout / "requirements.txt").write_text("# nothing after all\n")
    assert _run(checkout, "bootstrap", bare).returncode == 0

    (checkout / DEVSTACK).write_text("# another dependency of devstack\n")
    assert "Installing" in _run(checkout, "bootstrap", bare).stdout
    assert _run(checkout, "bootstrap", bare).stdout == ""


def test_what_runs_is_the_app_and_devstack_without_what_tests() -> None:
    def lines(name: str) -> set[str]:
        return {line for line in (ROOT / name).read_text().splitlines() if line and line[0] != "#"}

    assert lines("requirements-run.txt") == {
        "-r requirements.txt",
        "--editable ./packages/changefeed",
        "--editable ./packages/devstack",
        "fastapi-swagger>=0.4,<1",
    }
    assert "-r requirements-run.txt" in lines("requirements-dev.txt")
    run = re.search(r"^run:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert run
    assert run[1].splitlines()[0] == "\t@scripts/bootstrap run"


def test_make_clean_works_before_anything_is_installed(tmp_path: Path) -> None:
    (tmp_path / "cosmos").mkdir()
    result = subprocess.run(
        ["make", "-C", str(ROOT), "--no-print-directory", "clean"],
        env={
            **os.environ,
            "DEVSTACK_DATA": str(tmp_path),
            "PYTHON": str(Path(sys.base_prefix) / "bin" / "python3"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"Forgotten: {tmp_path / 'cosmos'}\n"
