"""Tests in several processes are reported as in one process, and a process that dies hides no test."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree as ET

import pytest

from tests.support.paths import ROOT

FILES = {
    "conftest.py": """
        import os, pathlib, pytest

        here = pathlib.Path(__file__).parent

        @pytest.fixture(scope="session")
        def shared():
            (here / f"began-{os.getpid()}").touch()
            yield os.getpid()
            (here / f"ended-{os.getpid()}").touch()

        @pytest.fixture(scope="session")
        def ends_badly():
            yield
            raise OSError("still in use")
    """,
    "test_a.py": """
        def test_shares(shared): pass
        def test_prints_and_fails(shared):
            print("what it printed")
            assert shared == 0
    """,
    "test_b.py": """
        import os, signal
        def test_before(shared): pass
        def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
        def test_after(): pass
    """,
    "test_c.py": """
        import warnings
        def test_warns(): warnings.warn("old")
        def test_last(ends_badly): pass
    """,
}

NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""To import those that are installed takes longer than these tests, which need none."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(dedent(text))
    return tmp_path


def run(
    folder: Path, *arguments: str
) -> tuple[subprocess.CompletedProcess[str], Mapping[str, Sequence[str]]]:
    """The run, and for each test what went wrong, as a report for machines has it."""
    report = folder / "report.xml"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.processes", "-p", "no:cacheprovider", "--processes=3",
         f"--junitxml={report}", f"--rootdir={folder}", *arguments, str(folder)],
        cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": "-c /dev/null", **NO_PLUGINS},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    cases = ET.parse(report).iter("testcase")
    failures: dict[str, list[str]] = {}
    for case in cases:
        if "name" not in case.attrib:
            continue  # a test that was broken off
        failures.setdefault(case.attrib["name"], []).extend(str(each.text) for each in case if each.text)
    return ended, failures


def processes(folder: Path, what: str) -> set[int]:
    """The ids of those that began, or ended, what their tests share."""
    return {int(each.name.partition("-")[2]) for each in folder.glob(f"{what}-*")}


@pytest.mark.long  # pytest in pytest
def test_each_test_is_reported_once_and_its_failure_says_why(folder: Path) -> None:
    ended, failures = run(folder)
    assert ended.returncode == 1
    died = "its process ended by SIGKILL before the test did"
    assert {name: each for name, each in failures.items() if name in ("test_shares", "test_before", "test_warns")} == {
        "test_shares": [], "test_before": [], "test_warns": [],
    }  # fmt: skip
    assert (failures["test_dies"], failures["test_after"]) == ([died], [died])
    assert "assert shared == 0" in failures["test_prints_and_fails"][0]
    assert "OSError: still in use" in failures["test_last"][0]
    assert len(failures) == 7
    for line in ("what it printed", "UserWarning: old"):
        assert line in ended.stdout
    assert "3 failed, 4 passed, 1 warning, 1 error" in ended.stdout
    # Of the one that was killed nothing is torn down; of the other all is.
    assert (len(processes(folder, "began")), len(processes(folder, "ended"))) == (2, 1)
