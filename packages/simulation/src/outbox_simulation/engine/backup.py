"""Restores the judges' records together with the store."""

from collections import defaultdict
from copy import copy
from typing import Any

from outbox_simulation.engine.bus_queue import Taken
from outbox_simulation.engine.watching import Watcher
from outbox_simulation.invariants.history import History


class Backup:
    """The judges' records at the moment of the backup."""

    def __init__(self, history: History, watcher: Watcher) -> None:
        self._history, self._watcher = history, watcher
        self._known = {name: _copied(value) for name, value in vars(history).items()}
        self._reached = watcher.reached()

    def put_back(self, taken: list[Taken]) -> None:
        """Restores the records: later ones are forgotten, and so is what the topic has taken till now."""
        vars(self._history).update(self._known)
        self._watcher.passed(taken, self._reached)


def _copied(value: Any) -> Any:
    if isinstance(value, defaultdict):
        return defaultdict(list, {name: [*each] for name, each in value.items()})
    return copy(value)
