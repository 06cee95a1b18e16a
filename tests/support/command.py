"""``python -m cosmos_outbox`` as its user runs it, in a process that is forked from one that has imported it."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryFile

from devstack.testing import warm
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
    if not warm.can_start(environment):
        return run_python(*arguments, environment=environment)
    with TemporaryFile() as errors:
        begun = warm.start(arguments, environment, errors, module="cosmos_outbox", folder=ROOT)
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


def run_python(*arguments: str, environment: Mapping[str, str]) -> Ended:
    """The same in a new Python: half a second of CPU."""
    ended = subprocess.run(
        [sys.executable, "-m", "cosmos_outbox", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN_SECONDS, check=False,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)
