"""The service comes through a run of everything without a violation, and no planted bug does: so a run can fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.torture.plan import plan

BUGS = Path(__file__).parent / "bugs"


def torture(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.torture", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def number(row: str, output: str) -> int:
    found = re.search(rf"^ *{row} +(\d+)", output, flags=re.MULTILINE)
    assert found, f"no {row} in:\n{output}"
    return int(found[1])


@pytest.mark.timeout(240)
def test_nothing_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    done = torture(tmp_path, "--seconds", "20", "--seed", "13")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert number("violations", done.stdout) == 0
    assert number("processes killed", done.stdout) >= 8
    assert int(re.findall(r"of (\d+) kinds", done.stdout)[0]) >= 5
    assert number("events delivered", done.stdout) >= 50
    assert number("create operations", done.stdout) >= 5
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("torture-")]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("bug", "profile", "seconds", "rule"),
    [
        ("checkpoint_before_send", "broker-away-and-host-killed", 6, "order|lost event"),
        ("batch_in_two_writes", "failing-writes", 4, "order|lost event|contact without its events"),
        ("no_sequence_sort", "nothing", 3, "order"),
        ("finite_retry", "broker-away", 7, "order|lost event"),
    ],
)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str, profile: str, seconds: int, rule: str) -> None:
    arguments = ("--profile", profile, "--seconds", str(seconds), "--seed", "1", "--patience", "15")
    done = torture(tmp_path, "--app", str(BUGS / bug), *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert number("violations", done.stdout) >= 1
    assert re.search(rf"^  ({rule}): ", done.stdout, flags=re.MULTILINE), done.stdout


def test_a_seed_always_plans_the_same_and_another_seed_something_else() -> None:
    assert plan("everything", 7, 60) == plan("everything", 7, 60)
    assert plan("everything", 7, 60) != plan("everything", 8, 60)


@pytest.mark.parametrize("seed", range(20))
def test_two_minutes_are_planned_with_kills_and_other_faults_enough(seed: int) -> None:
    strikes = plan("everything", seed, 120)
    assert sum(strike.kind == "kill" for strike in strikes) >= 30
    assert len({strike.name for strike in strikes if strike.kind != "kill"}) >= 15
    assert [strike.at for strike in strikes] == sorted(strike.at for strike in strikes)
