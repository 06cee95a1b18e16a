"""The receiver that is copied has each event of each aggregate once and in order, whatever befell it and the relays.

It is killed and paused as the others are; a request that nobody saw answered comes again, and one that timed out may
still arrive after those that follow it.
"""

import base64
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import aiohttp

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.testing import LocalAzure, Program
from outbox_simulation.derived_invariants.found import LeftBehind
from outbox_simulation.invariants.violation import Violation
from tests.support.paths import ROOT

_SECRET = "whsec_" + base64.b64encode(b"a secret of a test, 32 bytes lon").decode()


class Receiver:
    """A process of its own, with its own data."""

    def __init__(self, azure: LocalAzure) -> None:
        self._azure = azure
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"http://127.0.0.1:{free.getsockname()[1]}"

    @property
    def settings(self) -> Mapping[str, str]:
        """Those of the relay that sends to it, beside the one to the service's own transport."""
        return {
            "TRANSPORT": "webhook", "WEBHOOK_URL": f"{self._address}/events", "WEBHOOK_SECRETS": _SECRET,
            "RELAY_LEASE_PREFIX": "partner-", "COSMOS_PARKED_CONTAINER": "partner-parked",
        }  # fmt: skip

    def start(self) -> Program:
        """It takes requests from now on. Raises AssertionError with its log."""
        return self._azure.program(
            *(sys.executable, "-m", "uvicorn", "--factory", "examples.receiver.app:from_environment"),
            *("--port", self._address.rpartition(":")[2]),
            ready="Uvicorn running on", name="receiver", folder=ROOT,
            WEBHOOK_SECRETS=_SECRET, RECEIVER_DATABASE=str(self._database),
            SOURCE="http://127.0.0.1:1/{type}/{id}",  # nothing is given up here
        )  # fmt: skip

    async def judge(self, found: LeftBehind) -> list[Violation]:
        """What it has got, beside what is stored. What may still come is not wrong for good."""
        wrong = []
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
            for key, events in found.events().items():
                async with session.get(f"{self._address}/entries/{key.type}/{key.id}") as answer:
                    state = await answer.json()
                wrong += [*_differs(key, [each.action for each in events], (state or {}).get("events", []))]
        return wrong

    @property
    def _database(self) -> Path:
        return self._azure.folder / "receiver.db"


def _differs(key: AggregateKey, stored: Sequence[str], taken: Sequence[str]) -> Iterator[Violation]:
    if taken != stored:
        late = taken == stored[: len(taken)]
        yield Violation("receiver", f"{key}: {[*taken]}, not {[*stored]}", may_pass=late)
