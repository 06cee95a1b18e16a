"""A devstack service under test is a real process on a free port; restarts keep the port and the data."""

import contextlib
import selectors
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from devstack.azurite import azurite
from devstack.settings import COSMOS_KEY, SERVICEBUS_CONNECTION, storage_connection
from devstack.testing.faults import Faults
from devstack.testing.process import Begun, Process

READY_WITHIN_SECONDS = 40.0
PORT_FLAGS = {
    "cosmos": ["--port"],
    "servicebus": ["--port", "--admin-port"],
    "functions": ["--port"],
    "storage": ["--blob-port", "--queue-port"],
}
"""In the order of the addresses on the service's READY line."""


class Service(Process):
    """``devstack <name> ...`` with its data in ``folder`` and its log beside that."""

    speaks = True

    def __init__(
        self, name: str, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, folder.parent / f"{folder.name}.log", environment=environment)
        self.folder = folder
        self.addresses: list[str] = []
        self._arguments = [f"--data={folder}", *arguments]

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def port(self) -> int:
        return port_of(self.address)

    @property
    def connection_string(self) -> str:
        """With the well-known key, of a Cosmos DB, a Service Bus or a storage account."""
        if self.name == "cosmos":
            return f"AccountEndpoint={self.address};AccountKey={COSMOS_KEY};"
        if self.name == "storage":
            return storage_connection(*map(port_of, self.addresses))
        return SERVICEBUS_CONNECTION.format(self.address.partition("//")[2])

    @property
    def admin_connection_string(self) -> str:
        """For ``devstack.administration.administration_client``, which administers a Service Bus."""
        return SERVICEBUS_CONNECTION.format(self.addresses[1].partition("//")[2])

    @property
    def faults(self) -> Faults:
        """What to make go wrong in a Cosmos DB or a Service Bus that was started with ``--faults``."""
        return Faults(self.addresses[-1])

    def command(self) -> list[str]:
        """On free ports at first, on the same ones from then on."""
        if self.name == "storage":
            azurite()  # npm may take longer than a service has to get ready
        ports = [port_of(address) for address in self.addresses] or [0] * len(PORT_FLAGS[self.name])
        flags = [f"{flag}={port}" for flag, port in zip(PORT_FLAGS[self.name], ports, strict=True)]
        return [sys.executable, "-m", "devstack", self.name, "--watch-stdin", *flags, *self._arguments]

    def wait_until_ready(self, process: Begun) -> None:
        """Read its READY line."""
        assert process.stdout is not None
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if selector.select(deadline - time.monotonic()):
                line = process.stdout.readline().decode()
                if line.startswith("READY "):
                    self.addresses = line.split()[1:]
                    return
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
