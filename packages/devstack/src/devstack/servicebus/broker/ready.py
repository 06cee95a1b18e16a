"""Messages waiting for a reader come out in sequence order, also those that come back; and browsing starts anywhere."""

import bisect
import heapq
from collections.abc import Callable, Iterator

_SLACK = 256


class Ready:
    """Sequence numbers that may be taken, smallest first. ``is_ready``: whether one of them still may."""

    def __init__(self, is_ready: Callable[[int], bool]) -> None:
        self._is_ready = is_ready
        self._heap: list[int] = []
        self._live_at_last_rebuild = 0

    def __bool__(self) -> bool:
        heap = self._heap
        while heap and not self._is_ready(heap[0]):
            heapq.heappop(heap)
        return bool(heap)

    def add(self, sequence: int) -> None:
        heapq.heappush(self._heap, sequence)
        if len(self._heap) > 2 * self._live_at_last_rebuild + _SLACK:
            self._heap = sorted({number for number in self._heap if self._is_ready(number)})
            self._live_at_last_rebuild = len(self._heap)

    def take(self) -> int | None:
        """Remove and return the smallest; the caller makes it unready."""
        return heapq.heappop(self._heap) if self else None


class SequenceIndex:
    """The sequence numbers that a queue holds, in order, for browsing from any of them."""

    def __init__(self, exists: Callable[[int], bool]) -> None:
        self._exists = exists
        self._numbers: list[int] = []
        self._live_at_last_rebuild = 0

    def add(self, sequence: int) -> None:
        if self._numbers and sequence < self._numbers[-1]:
            bisect.insort(self._numbers, sequence)
        else:
            self._numbers.append(sequence)
        if len(self._numbers) > 2 * self._live_at_last_rebuild + _SLACK:
            self._numbers = [number for number in self._numbers if self._exists(number)]
            self._live_at_last_rebuild = len(self._numbers)

    def starting_at(self, sequence: int) -> Iterator[int]:
        for position in range(bisect.bisect_left(self._numbers, sequence), len(self._numbers)):
            if self._exists(self._numbers[position]):
                yield self._numbers[position]
