"""``python -m cosmos_outbox`` as its user runs it, in a process that is forked from one that has imported it."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from devstack.testing import Process, warm
from tests.support.paths import ROOT

ENDS_WITHIN_SECONDS = 60.0


@dataclass
class Ended:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


def run_command(*arguments: str, environment: Mapping[str, str]) -> Ended:
    """In the checkout, whose pyproject.toml names the service, and with this environment alone."""
    return run_module("cosmos_outbox", *arguments, environment=environment)


def run_module(module: str, *arguments: str, environment: Mapping[str, str]) -> Ended:
    """Another module, in the same way."""
    if not warm.can_start(environment):
        return run_python("-m", module, *arguments, environment=environment)
    with TemporaryFile() as errors:
        begun = warm.start(arguments, environment, errors, module=module, folder=ROOT)
        assert begun.stdin is not None
        assert begun.stdout is not None
        begun.stdin.close()
        try:
            with begun.stdout as out:
                said = out.read()
            code = begun.wait(ENDS_WITHIN_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                begun.send_signal(signal.SIGKILL)
        errors.seek(0)
        return Ended(code, said.decode(), errors.read().decode())


def worker(part: str, settings: Mapping[str, str], log: Path) -> Process:
    """``python -m cosmos_outbox relay``, or ``subscriber``, on top of our environment; the log is appended to."""
    command = [sys.executable, "-m", "cosmos_outbox", part, "--probes", "0"]
    return Process(part, log, command, settings, ROOT).start()


def run_python(*arguments: str, environment: Mapping[str, str]) -> Ended:
    """A new Python: half a second of CPU before it imports anything of ours."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN_SECONDS, check=False,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)
