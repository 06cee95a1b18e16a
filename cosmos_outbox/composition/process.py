"""Makes a service's clients once per process, inside the running loop, and closes them when the loop ends.

Nothing happens at import, since the host imports the app just to list its functions. The Python worker has no shutdown
hook (https://github.com/Azure/azure-functions-python-worker/issues/1904), so a task waits for the end of the loop:
``asyncio.run`` cancels the remaining tasks when it ends, and that task then closes the clients.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, cast

from cosmos_outbox.kernel.lazy_imports import loading
from cosmos_outbox.telemetry.correlation import tag_log_lines

_log = logging.getLogger(__name__)


W = TypeVar("W")

_here: ContextVar[Mapping["ProcessSingleton[Any]", Any]] = ContextVar("here", default={})  # noqa: B039 - never changed
"""The service of the simulated process whose code runs, if several of them share a loop."""


class ProcessSingleton(Generic[W]):
    """Makes a service at the first call, and closes its clients when the loop ends."""

    def __init__(self, make: Callable[[], W], clients: Callable[[W], AsyncExitStack]) -> None:
        self._make, self._clients = make, clients
        self._made: tuple[W, asyncio.AbstractEventLoop] | None = None
        self._closing: asyncio.Task[None] | None = (
            None  # kept here: a task without a reference may be collected
        )

    def __call__(self) -> W:
        """The service of this process. Raises Misconfigured when a setting is missing or wrong."""
        if (here := _here.get().get(self)) is not None:
            return cast(W, here)
        loop = asyncio.get_running_loop()
        if self._made is None or self._made[1] is not loop:
            tag_log_lines()
            with loading():
                service = self._make()
            self._made = service, loop
            self._closing = loop.create_task(_close_when_the_loop_ends(self._clients(service)))
        return self._made[0]

    def here(self, service: W) -> None:
        """Use this service in the context and in tasks that begin in it; its maker closes it."""
        _here.set({**_here.get(), self: service})

    @contextmanager
    def taken_from(self, service: W) -> Iterator[None]:
        """Use this service in the running loop in place of one of its own; its maker closes it."""
        before, self._made = self._made, (service, asyncio.get_running_loop())
        try:
            yield
        finally:
            self._made = before


async def _close_when_the_loop_ends(resources: AsyncExitStack) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await resources.aclose()
        _log.debug("clients closed")
