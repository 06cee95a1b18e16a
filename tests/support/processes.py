"""A devstack service under test is a real process on a random port, which a test may kill, pause and start again."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
READY_WITHIN_SECONDS = 20.0
PORT_FLAGS = {"cosmos": ["--port"], "servicebus": ["--port", "--admin-port"], "functions": ["--port"]}
"""In the order of the addresses on the service's READY line."""


class Service:
    """``python -m devstack <name> ...`` with its data in ``folder``; restarts keep the port and the data."""

    def __init__(
        self, name: str, folder: Path, *arguments: str, environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.folder = folder
        self.addresses: list[str] = []
        self.log = folder.parent / f"{folder.name}.log"
        self._arguments: Sequence[str] = arguments
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def port(self) -> int:
        return _port(self.address)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the service was never started"
        return self._process.pid

    def start(self) -> Self:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        ports = [_port(address) for address in self.addresses] or [0] * len(PORT_FLAGS[self.name])
        flags = [f"{flag}={port}" for flag, port in zip(PORT_FLAGS[self.name], ports, strict=True)]
        command = [sys.executable, "-m", "devstack", self.name, "--watch-stdin", *flags, *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._environment},
            )
        self.addresses = self._wait_until_ready()
        return self

    def kill(self) -> None:
        """SIGKILL: nothing gets the chance to be written."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        self._process = None
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(
                f"{self.name} did not end within 10 s of {number.name}; see {self.log}"
            ) from None
        finally:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        return code

    def _wait_until_ready(self) -> list[str]:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if selector.select(deadline - time.monotonic()):
                line = self._process.stdout.readline().decode()
                if line.startswith("READY "):
                    return line.split()[1:]
        self._end(signal.SIGKILL)
        raise AssertionError(f"{self.name} did not become ready:\n{self.log.read_text()[-4000:]}")


def _port(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


@contextlib.contextmanager
def running(service: Service) -> Iterator[Service]:
    """Start the service; whatever the test did to it, no process is left."""
    service.start()
    try:
        yield service
    finally:
        with contextlib.suppress(ProcessLookupError, AssertionError):
            service.resume()
        service.terminate()
