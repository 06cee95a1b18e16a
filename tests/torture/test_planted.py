"""The list of planted bugs fits the code: each can be planted in deployed code, and the checker has its rules."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.torture.judge import BAD, BROKEN_OFF, GOOD
from tests.torture.plan import PROFILES
from tests.torture.planted import Run, copy_tracked, plant, table
from tests.torture.planted_bugs import PLANTED, Planted

DEPLOYED = (
    "cosmos_outbox/",
    "infra/",
    "domain/",
    "application/",
    "cosmos_changefeed/",
    "function_app.py",
)
RULES = "".join(each.read_text() for each in (ROOT / "cosmos_outbox" / "testing" / "judging").glob("*.py"))

BUG = Planted("b", "code.py", "right\n", "wrong\n", "nothing", ("order",))


def test_there_are_at_least_twelve_each_with_a_name_of_its_own() -> None:
    assert len(PLANTED) >= 12
    assert [name for name, times in Counter(bug.name for bug in PLANTED).items() if times > 1] == []


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    assert bug.file.startswith(DEPLOYED)
    text = (ROOT / bug.file).read_text()
    assert text.count(bug.old) == 1, f"{bug.file} has changed: plant {bug.name} anew"
    compile(text.replace(bug.old, bug.new), bug.file, "exec")
    assert bug.new != bug.old
    assert bug.profile in PROFILES
    assert bug.rules
    assert [rule for rule in bug.rules if f'"{rule}"' not in RULES] == []


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_every_bug_does_what_its_name_says_and_does_not_fail_by_itself(tmp_path: Path) -> None:
    """As far as types tell: a bug that raises AttributeError breaks a run off, and no rule sees it."""
    copy_tracked(tmp_path)
    for bug in PLANTED:
        plant(bug, tmp_path)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *(name.rstrip("/") for name in DEPLOYED)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_documentation_names_every_bug() -> None:
    page = (ROOT / "docs/internals/torture.md").read_text()
    assert [bug.name for bug in PLANTED if bug.name not in page] == []


def test_a_bug_is_planted_once_or_not_at_all(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text("left\nright\n")
    plant(BUG, tmp_path)
    assert code.read_text() == "left\nwrong\n"
    code.write_text("right\nright\n")
    with pytest.raises(ValueError, match="not there once in code"):
        plant(BUG, tmp_path)


def test_a_copy_has_all_code_and_nothing_that_git_does_not_know(tmp_path: Path) -> None:
    copy_tracked(tmp_path)
    assert (tmp_path / "function_app.py").read_bytes() == (ROOT / "function_app.py").read_bytes()
    assert (tmp_path / "packages/devstack/src/devstack/__init__.py").exists()
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("exit_code", "rules", "caught"),
    [
        (BAD, ("lost event", "order"), True),
        (BAD, ("unexpected answer",), False),
        (BROKEN_OFF, (), False),
        (GOOD, (), False),
    ],
)
def test_only_a_violation_that_is_about_a_bug_catches_it(
    exit_code: int, rules: tuple[str, ...], *, caught: bool
) -> None:
    run = Run("b", 1, exit_code, rules, 12.3, "")
    assert run.caught(BUG) is caught


def test_the_table_tells_what_caught_each() -> None:
    runs = [Run("b", 1, BAD, ("lost event", "order"), 12.3, ""), Run("b", 2, GOOD, (), 101.0, "")]
    assert table(runs).splitlines()[2:] == [
        "| b | 1 | lost event, order | 12 s |",
        "| b | 2 | none | 101 s |",
    ]
