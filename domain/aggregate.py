"""An aggregate's events number its changes: ``sequence`` runs 1, 2, 3 … without a gap for as long as it lives.

Changes are collected by property and become events only when a unit of work asks for them, from the state as it
is then. So a property that was set twice is one event with its last value, a property that was set back is none,
and a new aggregate raises only its creation, whatever ran before it was stored.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from domain.events import DomainEvent

State = TypeVar("State")


@dataclass(frozen=True)
class Changes(Generic[State]):
    """What one unit of work has to store for one aggregate: its new state and the events that led there."""

    state: State
    events: tuple[DomainEvent, ...]


class Aggregate(ABC, Generic[State]):
    """Keeps the state as loaded beside the state as it is, and which properties differ, in the order of first touch."""

    def __init__(self, state: State, *, is_new: bool) -> None:
        self._loaded = state
        self._state = state
        self._is_new = is_new
        self._changed: list[str] = []
        self._changed_at: datetime | None = None

    @property
    def state(self) -> State:
        """The state now, changes included."""
        return self._state

    @property
    def is_new(self) -> bool:
        """True until the aggregate was stored and loaded again."""
        return self._is_new

    def changes(self) -> Changes[State] | None:
        """The new state and its numbered events, or None when there is nothing to store.

        Event ids are made here: a unit of work asks once and keeps the answer.
        """
        if self._is_new:
            return self._creation()
        if not self._changed or self._changed_at is None:
            return None
        return self._update(tuple(self._changed), self._changed_at)

    def _set(self, name: str, value: object, at: datetime) -> None:
        """Change one property of the state and remember it, unless it holds that value anyway."""
        if getattr(self._state, name) == value:
            return
        self._state = self._with({name: value})
        if getattr(self._loaded, name) == value:
            self._changed.remove(name)
        else:
            if name not in self._changed:
                self._changed.append(name)
            self._changed_at = at

    @abstractmethod
    def _with(self, update: dict[str, object]) -> State:
        """The state with some properties changed."""

    @abstractmethod
    def _creation(self) -> Changes[State]:
        """What storing a new aggregate takes."""

    @abstractmethod
    def _update(self, changed: tuple[str, ...], at: datetime) -> Changes[State]:
        """What storing these changed properties takes."""
