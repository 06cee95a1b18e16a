"""A listener outlives its service: an outage is logged once, waited out, and never ends the host."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
"""Short, as what a local host waits for is usually being restarted next to it."""
REMIND_AFTER_SECONDS = 60.0
ANOTHER_REASON_AFTER_SECONDS = 10.0
"""What goes away often says so in two ways within a moment, first on the old connection and then on a new one."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stop:
    """How a host stops. A drain lets running functions end and counts what they did.

    Without one, all is cancelled at once: a batch of the change feed whose function still ends gets no checkpoint, as
    in Azure when an instance is restarted. A function is not notified, and goes on until the process is ended.
    """

    seconds: float
    """The time for running functions to end."""
    drain: bool


class Listener(Protocol):
    """Turns what happens in a service into invocations."""

    async def run(self) -> None:
        """Listen until :meth:`stop`."""

    async def stop(self, stop: Stop) -> None:
        """Listen no more. What invocations that do not end in time worked on is delivered again."""


class Outage:
    """What a listener waits for, logged once and not at every attempt."""

    def __init__(self, service: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._logged: str | None = None
        self._logged_at = 0.0
        self._attempts = 0

    @property
    def pause(self) -> float:
        """Seconds to wait before the next attempt; grows while the outage lasts."""
        return min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._attempts, 10), LONGEST_PAUSE_SECONDS)

    def met(self, error: Exception) -> None:
        self._attempts += 1
        reason = first_line(error)
        quiet = REMIND_AFTER_SECONDS if reason == self._logged else ANOTHER_REASON_AFTER_SECONDS
        if self._logged is not None and self._clock() - self._logged_at < quiet:
            return
        self._logged, self._logged_at = reason, self._clock()
        _log.warning("waiting for %s: %s", self._service, reason)

    def over(self) -> None:
        if self._logged is not None:
            _log.info("%s is there again", self._service)
        self._logged = None
        self._attempts = 0


def first_line(error: BaseException) -> str:
    """An SDK's error fit for one line: its messages go on with request headers and stack traces."""
    text = str(error).strip().partition("\n")[0][:300]
    return text or type(error).__name__


class Running:
    """The tasks that are inside an invocation, so that a stop can let just those end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    @contextlib.contextmanager
    def invocation(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None, "invocations run in tasks"
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks
