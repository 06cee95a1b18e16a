"""A devstack service under test is a real process on a random port, which a test may kill, pause and start again."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from devstack.settings import cosmos_connection, servicebus_connection
from devstack.testing.faults import Faults

READY_WITHIN_SECONDS = 20.0
PORT_FLAGS = {"cosmos": ["--port"], "servicebus": ["--port", "--admin-port"], "functions": ["--port"]}
"""In the order of the addresses on the service's READY line."""
CONNECTION_STRINGS = {"cosmos": cosmos_connection, "servicebus": servicebus_connection}
STORING = ("cosmos", "servicebus")
"""The services that keep data."""


class Service:
    """``devstack <name> ...`` with its data in ``folder``; restarts keep the port and the data."""

    def __init__(
        self, name: str, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.folder = folder
        self.addresses: list[str] = []
        self.log = folder.parent / f"{folder.name}.log"
        self._arguments = [f"--data={folder}", *arguments] if name in STORING else list(arguments)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def port(self) -> int:
        return port_of(self.address)

    @property
    def connection_string(self) -> str:
        """With the well-known key, of a Cosmos DB or a Service Bus."""
        return CONNECTION_STRINGS[self.name](self.port)

    @property
    def admin_connection_string(self) -> str:
        """For ``devstack.administration.administration_client``, which administers a Service Bus."""
        return servicebus_connection(port_of(self.addresses[1]))

    @property
    def faults(self) -> Faults:
        """What to make go wrong in a Cosmos DB or a Service Bus that was started with ``--faults``."""
        return Faults(self.addresses[-1])

    @property
    def pid(self) -> int:
        assert self._process is not None, "the service was never started"
        return self._process.pid

    def start(self) -> Self:
        """Start it and wait until it can be used. Raises AssertionError with its log when it does not come up."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        ports = [port_of(address) for address in self.addresses] or [0] * len(PORT_FLAGS[self.name])
        flags = [f"{flag}={port}" for flag, port in zip(PORT_FLAGS[self.name], ports, strict=True)]
        command = [sys.executable, "-m", "devstack", self.name, "--watch-stdin", *flags, *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
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
        """SIGSTOP: connections stay open, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
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


def port_of(address: str) -> int:
    """The port in an address of a READY line."""
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
