"""The demo checks its own promises: this test reads the result of each chapter."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from devstack.console import Console
from devstack.service import CannotStart
from devstack.settings import StackSettings
from devstack.testing.processes import alive_with
from tests.support.paths import ROOT
from tools.demo import __main__ as demo
from tools.demo.narrator import Narrator

PROMISES = [
    "201 with Location and ETag",
    "the contact and its event are stored together",
    "the event arrived, in the session that all events of this contact are in",
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


@pytest.mark.long
def test_every_promise_holds_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # A developer's settings for a real Azure must never reach the demo.
    monkeypatch.setenv("COSMOS", "AccountEndpoint=https://contoso.documents.azure.com/;AccountKey=x")
    result = subprocess.run(
        [sys.executable, "-m", "tools.demo"],
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


def _ends_with(monkeypatch: pytest.MonkeyPatch, problem: BaseException | None) -> int:
    """The exit code of a demo in which one promise breaks, or that ends with ``problem``."""

    async def run(_settings: StackSettings, narrator: Narrator, console: Console) -> None:
        narrator.check("this one holds", held=True)
        console.line("cosmos", "what the service logged")
        if problem:
            raise problem
        narrator.check("that one does not", held=False)

    monkeypatch.setattr(demo, "_run", run)
    return demo.main([])


def test_a_broken_promise_is_printed_at_the_end_with_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ends_with(monkeypatch, None) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-2:] == ["   BROKEN that one does not", "1 of 2 promises held."]
    assert printed.err == "cosmos     | what the service logged\n"


def test_a_story_that_breaks_off_is_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ends_with(monkeypatch, TimeoutError("no answer")) == 1
    assert "the story runs to its end (TimeoutError: no answer)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("problem", "code"),
    [(CannotStart("do this"), 2), (KeyboardInterrupt(), 130), (asyncio.CancelledError(), 130)],
)
def test_a_demo_that_could_not_start_or_was_stopped(
    monkeypatch: pytest.MonkeyPatch, problem: BaseException, code: int
) -> None:
    assert _ends_with(monkeypatch, problem) == code
