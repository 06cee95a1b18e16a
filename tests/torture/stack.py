"""All processes of a run: the nemesis may kill, restart, pause and resume each; no process outlives the run."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count
from pathlib import Path

from devstack import testing
from devstack.administration import administration_client
from devstack.testing import Process, Service
from tests.support.azure import CLAIMS, CONTACTS, LEASES, PARKED
from tests.support.paths import ROOT
from tests.torture.subscriber import LOCK_SECONDS

DATABASE = "torture"
TOPIC = "torture-events"
SUBSCRIPTION = "witness"
APP_SUBSCRIPTION = "contact-directory"
PARTITIONS = 4

_DUPLICATE_WINDOW = timedelta(hours=1)
_ENDLESS_DELIVERIES = 2000
"""A subscriber that is killed over and over must not send a message to the dead letters: that is another story."""

_SETTINGS = {
    "COSMOS_DATABASE": DATABASE,
    "COSMOS_CONTAINER": CONTACTS,
    "COSMOS_LEASE_CONTAINER": LEASES,
    "COSMOS_PARKED_CONTAINER": PARKED,
    "COSMOS_CLAIM_CONTAINER": CLAIMS,
    "SERVICEBUS_TOPIC": TOPIC,
    "SERVICEBUS_SUBSCRIPTION": APP_SUBSCRIPTION,
    "PYTHONPATH": str(ROOT),
}


class Leashed(Process):
    """A Python module in a process that ends with ours, and has no READY line."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        super().__init__(name, folder / f"{name}.log", environment=environment, folder=ROOT)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.torture.leash", *self.module()]

    def module(self) -> list[str]:
        """The module and its arguments."""
        return ["cosmos_outbox", "relay"]


class Subscriber(Leashed):
    """The subscriber, which makes other mistakes in each of its lives."""

    def __init__(self, stack: "Stack", seed: int) -> None:
        super().__init__("subscriber", stack.folder, {})
        self._stack = stack
        self._lives = count(seed)

    def module(self) -> list[str]:
        connection = self._stack.servicebus.connection_string
        return [
            "tests.torture.subscriber",
            *("--connection", connection, "--topic", TOPIC, "--subscription", SUBSCRIPTION),
            *("--log", str(self._stack.subscriber_log)),
            *("--seed", str(next(self._lives))),
        ]


class Stack(testing.Stack):
    """The processes by name; ``worker``, the second relay, only where the app's own relay is under test."""

    def __init__(self, folder: Path, workers: int, page: int) -> None:
        several = f"--partitions={PARTITIONS}"
        settings = _SETTINGS | {"FUNCTIONS_WORKER_PROCESS_COUNT": str(workers), "RELAY_MAX_ITEMS": str(page)}
        super().__init__(folder, settings, cosmos=Service("cosmos", folder / "cosmos", "--faults", several))
        self.processes: dict[str, Process] = {"cosmos": self.cosmos, "servicebus": self.servicebus}
        self.others: list[Service] = []
        """The Functions hosts beside the first: clients use them too, and nobody kills them."""

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        return [f"{host.address.rstrip('/')}/api" for host in (self.functions, *self.others)]

    @property
    def clients_log(self) -> Path:
        return self.folder / "clients.jsonl"

    @property
    def subscriber_log(self) -> Path:
        return self.folder / "subscriber.jsonl"


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    app: Path,
    *,
    seed: int,
    hosts: int = 1,
    workers: int = 1,
    page: int = 1000,
    page_of_the_worker: int = 1000,
) -> AsyncIterator[Stack]:
    """Everything started and deployed, in ``folder``; the data stays there to look for a cause."""
    stack = Stack(folder, workers, page)
    try:
        await asyncio.to_thread(stack.start)
        await _make_topic(stack.servicebus)  # what the app declares of it is there already
        await asyncio.to_thread(stack.make, ROOT)
        others: list[Process] = [Subscriber(stack, seed)]
        if app == ROOT:
            few = {"RELAY_MAX_ITEMS": str(page_of_the_worker)}
            others.append(Leashed("worker", folder, stack.settings | few))
        host = asyncio.to_thread(stack.run, app)
        await asyncio.gather(host, *(asyncio.to_thread(stack.add, each) for each in others))
        for number in range(2, hosts + 1):
            stack.others.append(await asyncio.to_thread(stack.run_another, app, f"functions-{number}"))
        stack.processes |= {"functions": stack.functions} | {each.name: each for each in others}
        yield stack
    finally:
        await asyncio.to_thread(stack.kill)


async def _make_topic(servicebus: Service) -> None:
    async with administration_client(servicebus.admin_connection_string) as admin:
        await admin.create_topic(
            TOPIC,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=_DUPLICATE_WINDOW,
        )
        for subscription in (SUBSCRIPTION, APP_SUBSCRIPTION):
            await admin.create_subscription(
                TOPIC,
                subscription,
                requires_session=True,
                lock_duration=timedelta(seconds=LOCK_SECONDS),
                max_delivery_count=_ENDLESS_DELIVERIES,
            )
