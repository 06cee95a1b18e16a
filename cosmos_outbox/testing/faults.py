"""Faults of a store, on demand and without delay: the caller gets the error that it would get after all attempts."""

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TypeVar

from cosmos_outbox.cosmos.store.container import StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import OutboxError, OutcomeUnknown, Throttled, Unavailable

T = TypeVar("T")

_REASON = "on purpose, by a test"


@dataclass
class Faults:
    """The pending faults, in the order in which they were requested."""

    _of_calls: list[OutboxError] = field(default_factory=list)
    _of_writes: list[Callable[[Callable[[], Awaitable[object]]], Awaitable[Exception]]] = field(
        default_factory=list
    )

    @property
    def pending(self) -> int:
        """The number of pending faults."""
        return len(self._of_calls) + len(self._of_writes)

    def throttled(self, times: int = 1, *, retry_after_seconds: float = 1.0) -> None:
        """Let the next calls, reads or writes, raise Throttled."""
        self._of_calls += [Throttled(_REASON, retry_after_seconds=retry_after_seconds) for _ in range(times)]

    def unavailable(self, times: int = 1) -> None:
        """Let the next calls, reads or writes, raise Unavailable; nothing is stored."""
        self._of_calls += [Unavailable(_REASON) for _ in range(times)]

    def write_unavailable(self, times: int = 1) -> None:
        """Let the next writes raise Unavailable, while reads work; nothing is stored."""
        self._of_writes += [_instead(Unavailable(_REASON))] * times

    def answer_lost(self, *, stored: bool = True) -> None:
        """Let the next write raise OutcomeUnknown. ``stored``: whether it took place, which its caller cannot know."""

        async def lose(write: Callable[[], Awaitable[object]]) -> Exception:
            if stored:
                await write()
            return OutcomeUnknown(_REASON)

        self._of_writes.append(lose)

    def overtaken(self, times: int = 1) -> None:
        """Let the next writes fail because another writer was faster: the version is not the one that was read."""
        self._of_writes += [_instead(StoreFailed(Failure(Kind.STALE, _REASON)))] * times

    def meet_read(self) -> None:
        """For a store: raise the next fault of calls."""
        if self._of_calls:
            raise self._of_calls.pop(0)

    async def meet_write(self, write: Callable[[], Awaitable[T]]) -> T:
        """For a store: write, or raise the next fault of calls or writes."""
        self.meet_read()
        if self._of_writes:
            raise await self._of_writes.pop(0)(write)
        return await write()


def _instead(error: Exception) -> Callable[[object], Awaitable[Exception]]:
    async def fail(_write: object) -> Exception:
        return error

    return fail
