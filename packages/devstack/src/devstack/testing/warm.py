"""Services of many tests start in a tenth of the time: one process has imported what they import, and is forked.

A service that is begun so is a process like any other: of its own session, with its own environment and standard
streams, to be paused and killed. Only its command line is that of the process that it was forked from. Where a
``conftest.py`` calls :func:`import_ahead`, every ``python -m module`` that a test starts is begun so.

One warm process for each process of tests and for those that are forked from it, begun with the first service or with
:func:`begin`. It ends when the last of them does, however that ends.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


class Warm:
    """A service that was forked; what is used of :class:`subprocess.Popen`."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes] | None, status: socket.socket) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self.stdout = stdout
        self._status = status
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs. Negative: the signal that ended it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        if self._code is None:
            self._status.settimeout(timeout)
            try:
                code = self._status.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("devstack", timeout or 0) from None
            self._status.close()
            self._code = int(code or -signal.SIGKILL)  # nothing: the warm process was killed, and all with it
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class _Starter:
    """The warm process, as the tests' own process sees it."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "devstack.testing.warm_process", str(theirs.fileno()), *_ahead],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.end)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: IO[bytes],
        folder: Path,
        *,
        speaks: bool,
    ) -> Warm:
        """``command``: a module and its arguments."""
        stdin, give = os.pipe()
        take, stdout = os.pipe() if speaks else (None, os.dup(log.fileno()))
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([*command[:1], command[1:], dict(environment), str(folder)]).encode()
        with theirs:
            socket.send_fds(self._requests, [request], [stdin, stdout, log.fileno(), theirs.fileno()])
        os.close(stdin)
        os.close(stdout)
        pid = status.recv(64)
        assert pid, "the warm process has ended: its standard error says why"
        said = None if take is None else os.fdopen(take, "rb")
        return Warm(int(pid), os.fdopen(give, "wb", 0), said, status)

    def end(self) -> None:
        self._requests.close()
        self._process.wait()


_starting = threading.Lock()
_starter: _Starter | None = None
_ahead: list[str] = []


def import_ahead(*modules: str) -> None:
    """What the tests' apps and commands import is imported once, and the worker processes of apps are forked too.

    For a ``conftest.py``: before the first service starts. An app that has a package of this name gets its own.
    From then on ``python -m module`` is forked too, of whatever test's :class:`~devstack.testing.Process`.
    """
    _ahead.extend(module for module in modules if module not in _ahead)


def imports_ahead() -> bool:
    """Whether these tests have called :func:`import_ahead`."""
    return bool(_ahead)


def can_start(environment: Mapping[str, str], module: str = "devstack") -> bool:
    """Whether a process that is forked is as one that is started: not with another environment for Python itself."""
    if sys.platform != "linux" or (module != "devstack" and not _ahead):
        return False
    return not any(
        name.startswith("PYTHON") and name != "PYTHONPATH" and value != os.environ.get(name)
        for name, value in environment.items()
    )


def begin() -> None:
    """Begin the warm process now: what is forked from this process from now on shares it."""
    _begun()


def _begun() -> _Starter:
    global _starter  # noqa: PLW0603 - one for a process
    with _starting:
        if _starter is None:
            _starter = _Starter()
    return _starter


def start(  # noqa: PLR0913 - a process, most of it by name
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: IO[bytes],
    *,
    module: str = "devstack",
    folder: Path | None = None,
    speaks: bool = True,
) -> Warm:
    """``python -m module`` with these arguments, here or in ``folder``; its standard error goes into the log.

    ``speaks``: its standard output is for the test, and not for the log too.
    """
    return _begun().start([module, *arguments], environment, log, folder or Path.cwd(), speaks=speaks)
