"""Deadlines that were overtaken cost nothing for long: the heap is rebuilt before stale entries outnumber live ones."""

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_SLACK = 256

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Keys by the time at which they are due. ``current`` says when a key is due now, None when it no longer is."""

    def __init__(self, current: Callable[[K], int | None]) -> None:
        self._current = current
        self._heap: list[tuple[int, int, K]] = []
        self._number = 0
        self._live_at_last_rebuild = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when_ms: int, key: K) -> None:
        self._number += 1
        heapq.heappush(self._heap, (when_ms, self._number, key))
        if len(self._heap) > 2 * self._live_at_last_rebuild + _SLACK:
            self._rebuild()

    def next(self) -> int | None:
        """A time before which nothing is due; it may turn out to be too early."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """Remove and return the keys that are due, in order of their deadlines."""
        due: list[K] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            when = self._current(key)
            if when is None:
                continue
            if when <= now_ms:
                due.append(key)
            else:
                self.add(when, key)
        return list(dict.fromkeys(due))

    def _rebuild(self) -> None:
        live: dict[K, int] = {}
        for _, _, key in self._heap:
            when = self._current(key)
            if when is not None:
                live[key] = when
        self._heap = [(when, number, key) for number, (key, when) in enumerate(live.items())]
        heapq.heapify(self._heap)
        self._number = len(self._heap)
        self._live_at_last_rebuild = len(self._heap)
