"""``python -m module`` that runs to its end: forked like a service, from a process that has imported what it needs."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from devstack.testing import warm

ENDS_WITHIN_SECONDS = 60.0
"""Else it is one that does not end: it is killed."""


@dataclass
class Ended:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


def run_module(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Ended:
    """It and what it said, with this environment alone (None: ours), here or in ``folder``.

    Raises TimeoutExpired after a minute; it is ended then.
    """
    given, place = os.environ if environment is None else environment, folder or Path.cwd()
    if not warm.can_start(given, module):
        return run_python("-m", module, *arguments, environment=given, folder=place)
    with TemporaryFile() as errors:
        begun = warm.start(arguments, given, errors, module=module, folder=place)
        assert begun.stdin is not None
        assert begun.stdout is not None
        begun.stdin.close()
        until = time.monotonic() + ENDS_WITHIN_SECONDS
        try:
            with begun.stdout as out:
                said = _read(out, until, module)
            code = begun.wait(max(0.0, until - time.monotonic()))
        finally:
            with suppress(ProcessLookupError):
                begun.send_signal(signal.SIGKILL)
            begun.wait(ENDS_WITHIN_SECONDS)
        errors.seek(0)
        return Ended(code, said.decode(), errors.read().decode())


def _read(out: IO[bytes], until: float, module: str) -> bytes:
    """All that is said until its end. Raises TimeoutExpired: a process that goes on closes nothing."""
    said = b""
    while select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(out.fileno(), 65_536)
        if not part:
            return said
        said += part
    raise subprocess.TimeoutExpired(module, ENDS_WITHIN_SECONDS, said)


def run_python(*arguments: str, environment: Mapping[str, str], folder: Path) -> Ended:
    """A new Python: half a second of CPU before it imports anything of ours. Raises TimeoutExpired."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN_SECONDS, check=False,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)
