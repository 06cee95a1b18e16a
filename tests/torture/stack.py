"""All processes of a run, each of which the nemesis may kill, start again, pause and wake; none outlives the run."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol, Self

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from devstack.administration import administration_client
from devstack.testing import Service
from tests.support.azure import CONTACTS, LEASES, cosmos_connection, servicebus_connection
from tests.support.paths import ROOT
from tests.torture.subscriber import LOCK_SECONDS

DATABASE = "torture"
PARKED = "parked-events"
TOPIC = "torture-events"
SUBSCRIPTION = "witness"
APP_SUBSCRIPTION = "contact-directory"
PARTITIONS = 4

_DUPLICATE_WINDOW = timedelta(hours=1)
_ENDLESS_DELIVERIES = 2000
"""A subscriber that is killed over and over must not send a message to the dead letters: that is another story."""


class Process(Protocol):
    """What the nemesis needs of a process."""

    def start(self) -> object: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Plain:
    """A process without a READY line, on a leash."""

    def __init__(self, log: Path, environment: dict[str, str], arguments: Callable[[], list[str]]) -> None:
        self._log = log
        self._environment = environment
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.torture.leash", *self._arguments()],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
            )
        return self

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.kill()
            process.wait()
            process.stdin.close()

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, "the process is not running"
        self._process.send_signal(number)


@dataclass
class Stack:
    """The processes by name; ``worker``, the second relay, only where the app's own relay is under test."""

    folder: Path
    cosmos: Service
    servicebus: Service
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def functions(self) -> Service:
        functions = self.processes["functions"]
        assert isinstance(functions, Service)
        return functions

    @property
    def url(self) -> str:
        return f"{self.functions.address.rstrip('/')}/api"

    @property
    def clients_log(self) -> Path:
        return self.folder / "clients.jsonl"

    @property
    def subscriber_log(self) -> Path:
        return self.folder / "subscriber.jsonl"


@contextlib.asynccontextmanager
async def running(folder: Path, app: Path, *, seed: int) -> AsyncIterator[Stack]:
    """Everything started and deployed, in ``folder``; the data stays there for whoever looks for a cause."""
    async with AsyncExitStack() as ends:

        async def started(process: Process) -> None:
            ends.push_async_callback(asyncio.to_thread, process.kill)
            await asyncio.to_thread(process.start)

        stack = Stack(folder, _service(folder, "cosmos"), _service(folder, "servicebus"))
        await asyncio.gather(started(stack.cosmos), started(stack.servicebus))
        await asyncio.gather(_make_containers(stack.cosmos), _make_topic(stack.servicebus))
        environment = _environment(stack)
        stack.processes = {
            "cosmos": stack.cosmos,
            "servicebus": stack.servicebus,
            "functions": _functions(folder, app, environment),
            "subscriber": _subscriber(stack, seed),
        }
        if app == ROOT:
            stack.processes["worker"] = Plain(
                folder / "worker.log", environment, lambda: ["infra.relay_worker"]
            )
        later = [process for name, process in stack.processes.items() if name not in ("cosmos", "servicebus")]
        await asyncio.gather(*map(started, later))
        yield stack


def _service(folder: Path, name: str) -> Service:
    data = folder / name
    extra = ["--partitions", str(PARTITIONS)] if name == "cosmos" else []
    return Service(name, data, "--faults", *extra)


def _functions(folder: Path, app: Path, environment: dict[str, str]) -> Service:
    sample = str(ROOT / "local.settings.sample.json")
    arguments = ("--app", str(app), "--settings", sample)
    return Service("functions", folder / "functions", *arguments, environment=environment)


def _subscriber(stack: Stack, seed: int) -> Plain:
    lives = iter(range(seed, seed + 1_000_000))  # each life of it makes other mistakes

    def arguments() -> list[str]:
        connection = servicebus_connection(stack.servicebus)
        where = ["--connection", connection, "--topic", TOPIC, "--subscription", SUBSCRIPTION]
        return [
            "tests.torture.subscriber",
            *where,
            *("--log", str(stack.subscriber_log)),
            *("--seed", str(next(lives))),
        ]

    return Plain(stack.folder / "subscriber.log", {}, arguments)


def _environment(stack: Stack) -> dict[str, str]:
    return {
        "COSMOS": cosmos_connection(stack.cosmos),
        "COSMOS_DATABASE": DATABASE,
        "COSMOS_CONTAINER": CONTACTS,
        "COSMOS_LEASE_CONTAINER": LEASES,
        "COSMOS_PARKED_CONTAINER": PARKED,
        "SERVICEBUS": servicebus_connection(stack.servicebus),
        "SERVICEBUS_TOPIC": TOPIC,
        "SERVICEBUS_SUBSCRIPTION": APP_SUBSCRIPTION,
        "PYTHONPATH": str(ROOT),
    }


async def _make_containers(cosmos: Service) -> None:
    async with CosmosClient.from_connection_string(cosmos_connection(cosmos)) as client:
        database = await client.create_database(DATABASE)
        await database.create_container(CONTACTS, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container(PARKED, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container(LEASES, PartitionKey("/id"))


async def _make_topic(servicebus: Service) -> None:
    async with administration_client(servicebus_connection(servicebus, admin=True)) as admin:
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
