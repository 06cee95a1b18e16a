"""The ``devstack`` command as a user starts it, on free ports and with its own data: what it prints, how it ends."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from devstack.local_settings import sample_file
from devstack.ports import SETTINGS
from devstack.testing.processes import alive_with

READY_WITHIN_SECONDS = 40.0
ANY_PORTS = dict.fromkeys(SETTINGS.values(), "0")


def settings_file(app: Path, folder: Path) -> Path:
    """The app's sample settings, or none: a developer's own must not decide what is tested."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.json"
    sample = sample_file(app)
    file.write_bytes(sample.read_bytes() if sample else b'{"Values": {}}')
    return file


class Command:
    """The supervisor's process, what it printed, and all processes that belong to it."""

    def __init__(
        self, app: Path, folder: Path, *arguments: str, python: str = sys.executable, **environment: str
    ) -> None:
        self.data = folder / "data"
        self.lines: list[str] = []
        settings = settings_file(app, folder)
        self._process = subprocess.Popen(
            [python, "-m", "devstack", f"--app={app}", f"--settings={settings}", *arguments],
            env={**os.environ, **ANY_PORTS, "DEVSTACK_DATA": str(self.data), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_until_ready(self) -> Self:
        self.wait_for("Ready ")
        return self

    def wait_for(self, start: str) -> None:
        """Wait for a line that starts so."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while not any(line.startswith(start) for line in list(self.lines)):
            assert self._process.poll() is None, f"it ended:\n{self.output}"
            assert time.monotonic() < deadline, f"not ready:\n{self.output}"
            time.sleep(0.02)

    def address(self, service: str) -> str:
        """The first address on the line of ``Cosmos DB``, ``Service Bus`` or ``Functions``."""
        return self.line(service)[0]

    def line(self, service: str) -> list[str]:
        """The words on its line."""
        found = re.search(rf"^{service} +(.+)$", self.output, re.MULTILINE)
        assert found, self.output
        return found.group(1).split()

    def processes(self) -> list[int]:
        """The supervisor and its services: they all know the data folder, or the settings file beside it."""
        return alive_with(str(self.data.parent))

    def process_of(self, service: str) -> int:
        (pid,) = [pid for pid in alive_with(f"devstack {service} ") if pid in self.processes()]
        return pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal as Ctrl-C does, and wait; the exit code. Raises TimeoutExpired."""
        with contextlib.suppress(ProcessLookupError):
            self.send(number)
        code = self._process.wait(60)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))


@contextlib.contextmanager
def running_command(
    app: Path, folder: Path, *arguments: str, python: str = sys.executable, **environment: str
) -> Iterator[Command]:
    """A stack that is ready; it is ended whatever the test did, and none of its processes is left.

    ``python``: of the environment that it runs in.
    """
    running = Command(app, folder, *arguments, python=python, **environment)
    try:
        yield running.wait_until_ready()
    finally:
        if running.is_alive:
            running.end()
        for pid in running.processes():
            os.kill(pid, signal.SIGKILL)
