"""An entity is woken no later than its next deadline, and no entity is looked at before one of its own."""

import heapq
from collections.abc import Iterator, Mapping

from devstack.servicebus.broker.entity import Entity


class Wakeups:
    """When each entity has something to do next; ``entities`` are those that there are, by number."""

    def __init__(self, entities: Mapping[int, Entity]) -> None:
        self._entities = entities
        self._heap: list[tuple[int, int]] = []
        self._registered: dict[int, int] = {}
        """The earliest time in the heap, by entity: a later one need not be added."""

    def next(self) -> int | None:
        """A time before which :meth:`due` is empty."""
        return self._heap[0][0] if self._heap else None

    def watch(self, entity: Entity) -> None:
        """Note the entity's next deadline."""
        queue = entity.queue
        deadlines = [queue.next_deadline()]
        if queue.dead_letter is not None:
            deadlines.append(queue.dead_letter.next_deadline())
        for when in deadlines:
            if when is not None and when < self._registered.get(entity.id, when + 1):
                self._registered[entity.id] = when
                heapq.heappush(self._heap, (when, entity.id))

    def due(self, now_ms: int) -> Iterator[Entity]:
        """The entities whose time has come; each is to be watched again before the next is asked for."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, number = heapq.heappop(self._heap)
            self._registered.pop(number, None)
            entity = self._entities.get(number)
            if entity is not None:
                yield entity
