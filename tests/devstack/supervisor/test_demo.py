"""The demo is a promise to whoever runs it: each chapter's outcome is checked here by what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.devstack.supervisor.process_table import alive_with
from tests.support.processes import ROOT

PROMISES = [
    "201 with Location and ETag",
    "the contact and its event are stored together",
    "the event arrived, with the contact as its session",
    "200 with a new ETag",
    "both events arrived, in order",
    "412 Precondition Failed",
    "nothing was written",
    "the duplicate was dropped; the next event came",
    "the events are gone, the contact is there",
    "204 No Content",
    "404 for every reader",
    "the deletion arrived",
    "every event once, in order, without a gap",
]


def test_every_promise_holds_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # A developer's settings for a real Azure must never reach the demo.
    monkeypatch.setenv("COSMOS", "AccountEndpoint=https://contoso.documents.azure.com/;AccountKey=x")
    result = subprocess.run(
        [sys.executable, "-m", "devstack.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    kept = [line[7:].strip() for line in result.stdout.splitlines() if line.startswith("   ok ")]
    assert kept == PROMISES
    assert result.stdout.splitlines()[-1] == f"{len(PROMISES)} of {len(PROMISES)} promises held."
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert alive_with(str(tmp_path)) == []
