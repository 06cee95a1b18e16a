"""``make simulate`` shows a violation as its shortest story, and ends when asked to, with what it has found."""

import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.seeds import BROKE_OFF, Seeds
from tests.support.paths import python_path

BROKEN = "simulated.broken:BROKEN"
NARROW = ["--faults", "store away,split", "--seconds", "12", "--aggregates", "2"]
"""Of these seeds from 4 to 8 break a promise, in half a second each."""
ENDS_WITHIN_SECONDS = 140.0
"""On a machine that has much else to do."""

pytestmark = pytest.mark.timeout(300)


@contextmanager
def _command(folder: Path, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """It and its workers are gone in the end, whatever the test did. It listens to Ctrl-C, also where the tests do not:
    what a shell starts in the background ignores it, and so does all that is started there."""
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "outbox_simulation", *arguments],
            cwd=folder, env={**os.environ, "PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "1"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, ours)
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _done(folder: Path, *arguments: str) -> tuple[int, str]:
    with _command(folder, *arguments) as process:
        output, errors = process.communicate(timeout=ENDS_WITHIN_SECONDS)
    assert errors == ""
    return process.returncode, output


@pytest.mark.long  # test_shrink, test_story and packages/simulation/tests/test_plugin.py show the parts of it
def test_a_violation_is_shown_shortest_with_a_command_that_repeats_it(tmp_path: Path) -> None:
    code, output = _done(tmp_path, BROKEN, "--first", "5", "--seeds", "2", "--jobs", "1", *NARROW)
    assert code == 1
    assert "2 of 2 seeds, 2 with a violation" in output
    assert output.count("BROKEN: wrong answer") == 1, "each rule is shown once"
    plan = re.search(r"^plan +seed 5: ([\d.]+) s, (\d) aggregates, .*; (.+)$", output, re.MULTILINE)
    assert plan is not None, output
    assert float(plan[1]) < 12
    assert plan[3] == "store away", "splits had no part in it"
    assert re.search(r"^order +first in, first out$", output, re.MULTILINE)
    again = re.search(r"^run again +python -m outbox_simulation (.+)$", output, re.MULTILINE)
    assert again is not None
    code, alone = _done(tmp_path, *shlex.split(again[1]))
    assert code == 1
    page = output[output.index("BROKEN:") : output.index("length ")]
    assert page in alone
    assert "length      as it is" in alone


@pytest.mark.long  # a process for each, which imports all
@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_breaks_off_is_a_violation_of_its_seed_only(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = [SimulationPlan(seed, frozenset()) for seed in range(3, 3 + count)]
    seeds = Seeds("simulated.broken:NOT_THERE", plans, jobs=1)
    seeds.run()
    assert (seeds.done, seeds.bad) == (count, count)
    output = capsys.readouterr().out
    assert output.count(f"{BROKE_OFF}: its process ended with exit code 1") == count
    assert multiprocessing.active_children() == []
