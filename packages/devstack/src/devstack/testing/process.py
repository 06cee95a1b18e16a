"""A process under test, which a test may kill, pause and start again; it never outlives the test.

Its standard input is a pipe of ours: a process that watches it ends when the test's own process does.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar, Self

from devstack.testing.warm import Warm, can_start, start

ENDS_WITHIN_SECONDS = 30.0
"""On a machine that has much else to do."""

Begun = subprocess.Popen[bytes] | Warm


class Process:
    """``command`` with what it writes in ``log``; each start appends to it.

    A subclass whose lives differ overrides :meth:`command`; one that says on its standard output when it is ready sets
    ``speaks`` and overrides :meth:`wait_until_ready`.
    """

    speaks: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        log: Path,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = dict(environment or {})
        self._folder = folder
        self._process: Begun | None = None

    def command(self) -> list[str]:
        """What the next start runs."""
        return self._command

    def wait_until_ready(self, process: Begun) -> None:
        """Raises AssertionError when it does not become ready; a plain process is ready at once."""

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start it and wait until it is ready. Raises AssertionError with its log when it does not get so far."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = process = self.begin(log)
        try:
            self.wait_until_ready(process)
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        return self

    def begin(self, log: IO[bytes]) -> Begun:
        """The process, which may not be ready yet. See :mod:`devstack.testing.warm`."""
        command, environment = self.command(), {**os.environ, **self._environment}
        if command[:2] == [sys.executable, "-m"] and can_start(self._environment, command[2]):
            return start(
                command[3:], environment, log, module=command[2], folder=self._folder, speaks=self.speaks
            )
        return subprocess.Popen(
            command,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if self.speaks else log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )

    def kill(self) -> None:
        """SIGKILL to it and to what it started: nothing gets the chance to be written."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM; the exit code, 0 when it was not running. Raises AssertionError when it does not end in time."""
        return self._end(signal.SIGTERM)

    def restart(self) -> Self:
        """SIGKILL and a new start, on the same ports and data."""
        self.kill()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP to it and to what it started: connections stay open, and nobody answers."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            with contextlib.suppress(
                ProcessLookupError
            ):  # it ended just now, and its waiter is notified next
                if number is signal.SIGKILL:
                    os.killpg(process.pid, number)
                else:
                    process.send_signal(number)
        try:
            return process.wait(ENDS_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(
                f"{self.name} did not end within {ENDS_WITHIN_SECONDS:g} s of {number.name}; see {self.log}"
            ) from None
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
