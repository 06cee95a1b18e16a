"""As long as the limit allows, someone is always waiting for work: busy receivers never hold up the next
message.

To be ready to wait takes a connection and some tenths of a second, which is why there are spare receivers.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator


class ReceiverPool:
    """Up to ``limit`` tasks that run the same coroutine, ``spare`` of them waiting for work.

    A receiver marks the time in which it has work with :meth:`busy`, and ends when it finds
    :attr:`has_too_many` true after it waited in vain.
    """

    def __init__(self, limit: int, spare: int, work: Callable[[], Awaitable[None]]) -> None:
        self._limit = limit
        self._spare = min(spare, limit)
        self._work = work
        self._waiting = 0
        self._closed = False
        self.tasks: set[asyncio.Task[None]] = set()
        self._fill()

    @property
    def has_too_many(self) -> bool:
        return self._waiting > self._spare

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self._waiting -= 1
        self._fill()
        try:
            yield
        finally:
            self._waiting += 1

    def close(self) -> None:
        """Add no more receivers."""
        self._closed = True

    def _fill(self) -> None:
        while not self._closed and self._waiting < self._spare and len(self.tasks) < self._limit:
            self._waiting += 1
            task = asyncio.create_task(self._run())
            self.tasks.add(task)
            task.add_done_callback(self._removed)

    async def _run(self) -> None:
        await self._work()

    def _removed(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._waiting -= 1
