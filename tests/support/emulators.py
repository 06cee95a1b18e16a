"""Microsoft's emulators under the tests: their addresses, and their known gaps.

``TEST_COSMOS`` and ``TEST_SERVICEBUS`` name servers that run already, in the form of a READY line:
``http://127.0.0.1:8081/`` and ``amqp://127.0.0.1:5672 http://127.0.0.1:5300``. Without these settings every test starts
servers of its own. A test with the marker ``known_gap`` is expected to fail there, and may pass: the emulators improve
without notice. ``TEST_GAPS`` names the gaps of servers that have no others (:mod:`tests.support.gaps`). A test with the
marker ``own_stack`` kills, pauses or breaks servers, and so needs servers of its own.
"""

import json
import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import pytest

from devstack.testing import Service
from tests.support.paths import ROOT

_COSMOS = "https://github.com/Azure/azure-cosmos-db-emulator-docker/issues/"


class Gap(StrEnum):
    """What an emulator is known to do differently from the service, by the report of it."""

    BATCH_NOT_ATOMIC = _COSMOS + "303"
    BATCH_LIMITS = _COSMOS + "292"
    BATCH_IGNORES_ETAG = _COSMOS + "319"
    SESSION_TOKEN_IGNORED = _COSMOS + "322"
    SESSION_TOKEN_OF_QUERIES = _COSMOS + "331"
    NO_304 = _COSMOS + "349"
    PAGE_SIZE = _COSMOS + "347"
    CONTAINER_UPDATE = _COSMOS + "338"
    INDEX_POLICY = _COSMOS + "233"
    CHANGE_FEED = _COSMOS + "257"
    """The change feed is rudimentary: the Functions trigger does not run on it, and our processor may not either."""
    CONNECTIONS = "https://github.com/Azure/azure-service-bus-emulator-installer/issues/58"
    """At most 10 connections; the SDK for Python opens one for each sender and each session."""
    DELIVERY_COUNT = "https://github.com/Particular/NServiceBus.Transport.AzureServiceBus/pull/1331"
    """At most 10 deliveries of a message."""


SESSIONS_AT_ONCE = 2
"""With Gap.CONNECTIONS."""


class Elsewhere(Service):
    """A server that runs already. It can be asked, and neither stopped nor started."""

    def __init__(self, name: str, addresses: list[str]) -> None:
        super().__init__(name, Path(name))
        self.addresses = addresses

    def start(self) -> "Elsewhere":
        return self

    def kill(self) -> None:
        raise AssertionError(
            f"{self.name} was not started by the tests: mark the test with pytest.mark.own_stack"
        )

    pause = resume = kill

    def terminate(self) -> int:
        return 0


def elsewhere(name: str) -> Elsewhere | None:
    """The server of that name which the environment points at, if it does."""
    text = os.environ.get(f"TEST_{name.upper()}", "")
    return Elsewhere(name, text.split()) if text else None


def register(config: pytest.Config) -> None:
    """Make the two markers known."""
    config.addinivalue_line("markers", "own_stack: kills, pauses or breaks servers, so it starts its own")
    config.addinivalue_line(
        "markers", "known_gap(gap): does not hold on an emulator, for the reason reported there"
    )


def expect_failures(items: Iterable[pytest.Item]) -> None:
    """With a Cosmos that runs elsewhere, known gaps may fail."""
    if elsewhere("cosmos") is None:
        return
    names = os.environ.get("TEST_GAPS", "").split()
    gaps = {Gap[name] for name in names} or set(Gap)
    for item in items:
        for gap in item.iter_markers("known_gap"):
            if gap.args[0] in gaps:
                item.add_marker(pytest.mark.xfail(reason=Gap(gap.args[0]).value, strict=False))


def modest_app(app: Path, folder: Path) -> Path:
    """The same app with fewer sessions at once: see Gap.CONNECTIONS."""
    folder.mkdir(parents=True)
    for file in app.glob("*.py"):
        (folder / file.name).symlink_to(file)
    host = json.loads((ROOT / "host.json").read_text())
    host["extensions"]["serviceBus"]["maxConcurrentSessions"] = SESSIONS_AT_ONCE
    (folder / "host.json").write_text(json.dumps(host))
    return folder
