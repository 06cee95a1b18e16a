"""The service survives a full run without a violation; each planted bug is found, so a run can fail."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.torture import planted
from tests.torture.plan import plan
from tests.torture.planted_bugs import PLANTED

QUICKLY_FOUND = (
    "feed-order-instead-of-sequence",
    "events-in-a-second-write",
    "repetition-is-refused-for-ever",
    "inbox-applies-before-it-checks",
    "inbox-ignores-a-gap",
)
"""With any seed, within seconds; all bugs together take half an hour: ``python -m tests.torture.planted``."""


def torture(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.torture", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def count(row: str, output: str) -> int:
    found = re.search(rf"^ *{row} +(\d+)", output, flags=re.MULTILINE)
    assert found, f"no {row} in:\n{output}"
    return int(found[1])


@pytest.mark.deep
@pytest.mark.timeout(240)
def test_nothing_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    done = torture(tmp_path, "--seconds", "20", "--seed", "13")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert count("violations", done.stdout) == 0
    assert count("processes killed", done.stdout) >= 8
    assert int(re.findall(r"of (\d+) kinds", done.stdout)[0]) >= 5
    assert count("events delivered", done.stdout) >= 50
    assert count("create operations", done.stdout) >= 5
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("torture-")]


@pytest.mark.deep
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("profile", "fault"),
    [
        ("lost-leases", "delete leases (?:one|half|all)"),
        ("unattended-splits", "split unattended"),
        ("stolen-messages", "messages taken away"),
    ],
)
def test_nothing_is_lost_where_one_kind_of_fault_comes_often(
    tmp_path: Path, profile: str, fault: str
) -> None:
    done = torture(tmp_path, "--profile", profile, "--seconds", "20", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert count("violations", done.stdout) == 0
    assert count(fault, done.stdout) >= 1
    assert count("events delivered", done.stdout) >= 50


@pytest.mark.deep
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = next(each for each in PLANTED if each.name == name)
    run = planted.torture(bug, seed=1, seconds=30)
    assert run.caught(bug), run.output


@pytest.mark.deep
@pytest.mark.timeout(120)
def test_a_run_that_is_stopped_says_so(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.torture", "--seconds", "50", "--profile", "nothing"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 40
        while not any(
            b"acknowledged" in log.read_bytes() for log in tmp_path.glob("torture-*/clients.jsonl")
        ):
            assert time.monotonic() < deadline, "no client was answered"
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate()
    assert process.returncode == 2
    assert "\nBROKEN OFF: it was stopped from outside; " in output
    assert count("violations", output) == 0


def test_a_seed_always_plans_the_same_and_another_seed_something_else() -> None:
    assert plan("everything", 7, 60) == plan("everything", 7, 60)
    assert plan("everything", 7, 60) != plan("everything", 8, 60)
