"""As long as the limit allows, someone is always waiting for work: one busy worker never holds up the next
message.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator


class WorkerPool:
    """Between one and ``limit`` tasks that run the same coroutine.

    A worker marks the time in which it has work with :meth:`busy`, and ends when it finds :attr:`has_spare`
    true after it waited in vain.
    """

    def __init__(self, limit: int, work: Callable[[], Awaitable[None]]) -> None:
        self._limit = limit
        self._work = work
        self._waiting = 0
        self._closed = False
        self.tasks: set[asyncio.Task[None]] = set()
        self._add()

    @property
    def has_spare(self) -> bool:
        return self._waiting > 1

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self._waiting -= 1
        if self._waiting == 0 and len(self.tasks) < self._limit:
            self._add()
        try:
            yield
        finally:
            self._waiting += 1

    def close(self) -> None:
        """Add no more workers."""
        self._closed = True

    def _add(self) -> None:
        if self._closed:
            return
        self._waiting += 1
        task = asyncio.create_task(self._run())
        self.tasks.add(task)
        task.add_done_callback(self._removed)

    async def _run(self) -> None:
        await self._work()

    def _removed(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._waiting -= 1
