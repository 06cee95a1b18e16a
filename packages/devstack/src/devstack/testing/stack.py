"""A local Azure of a test's own: the services as processes of their own, and nothing is left of them at the end.

Nobody keeps the services running, as ``devstack`` does for a developer: what a test kills stays away until the test
starts it again.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from devstack import provision
from devstack.app_file import read_app
from devstack.local_settings import read_values, sample_file
from devstack.testing.process import Process
from devstack.testing.service import Service

P = TypeVar("P", bound=Process)
STOP_SECONDS = 3.0
"""What functions that still run are left at a stop: a test does not wait as long as Azure does."""


class Stack:
    """Cosmos DB and Service Bus in ``folder``, with faults on demand; ``make`` and ``run`` add an app, and its Azurite.

    ``settings`` are the app's, on top of its sample settings. Servers that run elsewhere can take the place of both.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        cosmos: Service | None = None,
        servicebus: Service | None = None,
    ) -> None:
        self.folder = folder
        self.cosmos = cosmos or Service("cosmos", folder / "cosmos", "--faults")
        self.servicebus = servicebus or Service("servicebus", folder / "servicebus", "--faults")
        self._given = dict(settings or {})
        self._sample: dict[str, str] = {}
        self._connection_names = "COSMOS", "SERVICEBUS"
        self._functions: Service | None = None
        self._storage: Service | None = None
        self._storage_name = "AzureWebJobsStorage"
        self._started: list[Process] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def functions(self) -> Service:
        """The Functions host that :meth:`run` has started."""
        assert self._functions is not None, "the stack runs no app: call run"
        return self._functions

    @property
    def storage(self) -> Service:
        """The Azurite that :meth:`make` has started for an app that declares something there."""
        assert self._storage is not None, "the app's devstack.toml declares no [storage]"
        return self._storage

    @property
    def settings(self) -> dict[str, str]:
        """The settings of an app: its sample's, what connects it to this stack, and what the test gave, which wins."""
        cosmos, servicebus = self._connection_names
        connections = {
            cosmos: self.cosmos.connection_string,
            servicebus: self.servicebus.connection_string,
        }
        if self._storage is not None:
            connections[self._storage_name] = self._storage.connection_string
        return self._sample | connections | self._given

    def give(self, **settings: str) -> None:
        """More settings for what is started from now on."""
        self._given |= settings

    def start(self) -> None:
        """Both servers at once. Raises AssertionError with the log of one that does not come up."""
        self._started += [self.cosmos, self.servicebus]
        try:
            with ThreadPoolExecutor(2) as starting:
                list(starting.map(lambda service: service.start(), [self.cosmos, self.servicebus]))
        except BaseException:
            self.stop()
            raise

    def make(self, app: Path) -> None:
        """What the ``devstack.toml`` in ``app`` declares, where it is not there yet."""
        self._sample = read_values(sample_file(app))
        declared = read_app(app, self.settings)
        self._connection_names = declared.cosmos.connection, declared.servicebus.connection
        run_beside(_make(self, declared.cosmos, declared.servicebus))
        if declared.storage.queues or declared.storage.blob_containers:
            self._storage_name = declared.storage.connection
            self._storage = self._storage or self.add(Service("storage", self.folder / "storage"))
            run_beside(provision.storage(self._storage.connection_string, declared.storage))

    def run(self, app: Path, *options: str) -> Service:
        """Start the Functions host with the ``function_app.py`` in ``app``, never with a developer's own settings."""
        self._functions = self.run_another(app, "functions", *options)
        return self._functions

    def run_another(self, app: Path, name: str, *options: str) -> Service:
        """Start one more Functions host with the app, as Azure has several; its log is called ``name``."""
        environment = read_values(sample_file(app)) | self.settings
        empty = self.folder / "no.settings.json"
        empty.write_text('{"Values": {}}')
        arguments = (f"--app={app}", f"--settings={empty}", f"--stop-seconds={STOP_SECONDS:g}", *options)
        return self.add(Service("functions", self.folder / name, *arguments, environment=environment))

    def add(self, process: P) -> P:
        """Start a process that ends with the stack."""
        self._started.append(process)
        process.start()
        return process

    def stop(self) -> None:
        """End all that is left, the last one first, paused or not. Raises AssertionError when one has to be killed."""
        with contextlib.ExitStack() as ending:
            for process in self._started:
                ending.callback(process.terminate)
                ending.callback(_wake, process)
        self._started = []

    def kill(self) -> None:
        """SIGKILL to all that is left."""
        for process in reversed(self._started):
            process.kill()
        self._started = []


def run_beside(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end in a loop of its own: the caller's loop may be running in this thread."""
    with ThreadPoolExecutor(1) as beside:
        beside.submit(asyncio.run, work).result()


async def _make(stack: Stack, cosmos: Any, servicebus: Any) -> None:
    await provision.cosmos(stack.cosmos.connection_string, cosmos)
    await provision.servicebus(stack.servicebus.admin_connection_string, servicebus)


def _wake(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError, AssertionError):
        process.resume()
