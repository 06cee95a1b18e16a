"""An aggregate's events number its changes: ``sequence`` runs 1, 2, 3 … without a gap for as long as it lives.

Changes of properties become events only when a unit of work asks for them, from the state as it is then. So a property
that was set twice is one event with its last value, a property that was set back is none, and a new aggregate raises
its creation alone. What no difference of properties explains, such as a task to be started, is raised as it happens.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from pydantic import ConfigDict

from outbox.event import DomainEvent, WireModel


class AggregateState(WireModel):
    """What is stored of an aggregate. ``last_sequence`` is the sequence of its newest event.

    A field that is not known was stored by a later version: the field is kept and stored again, else this version could
    not be deployed again without losing what the later one has stored.
    """

    model_config = ConfigDict(extra="allow")

    last_sequence: int = 0


State = TypeVar("State", bound=AggregateState)

Numbered = Callable[[int], DomainEvent]
"""Makes an event with the sequence that it is given."""


class AggregateKey(NamedTuple):
    """Which aggregate: ids are unique within a type. A tuple, since the relay groups thousands by it."""

    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type} {self.id}"


@dataclass(frozen=True)
class Changes(Generic[State]):
    """What one unit of work has to store for one aggregate: its new state and the events that led there."""

    state: State
    events: tuple[DomainEvent, ...]


class Aggregate(ABC, Generic[State]):
    """Keeps the state as loaded beside the state as it is, and what happened in between, in order.

    A subclass names itself with ``aggregate_type`` and its state's model with ``state_type``, changes itself through
    :meth:`_set` and :meth:`_raise` alone, and says which event tells of what.
    """

    aggregate_type: ClassVar[str]
    """The type's name in stored documents and messages; never change it once events are stored."""
    state_type: ClassVar[type[AggregateState]]

    def __init__(self, state: State, *, is_new: bool) -> None:
        self._loaded = state
        self._state = state
        self._is_new = is_new
        self._happened: list[str | Numbered] = []
        self._changed_at: datetime | None = None

    @classmethod
    def load(cls, state: State) -> Self:
        """The aggregate as it is stored."""
        return cls(state, is_new=False)

    @property
    @abstractmethod
    def aggregate_id(self) -> str:
        """The aggregate's identity among those of its type."""

    @property
    def partition_key(self) -> str:
        """What the aggregate's documents are partitioned by. Aggregates that share it can share a transaction."""
        return self.aggregate_id

    @property
    def key(self) -> AggregateKey:
        """Type and id."""
        return AggregateKey(self.aggregate_type, self.aggregate_id)

    @property
    def state(self) -> State:
        """The state now, changes included."""
        return self._state

    @property
    def is_new(self) -> bool:
        """True until the aggregate was stored and loaded again."""
        return self._is_new

    @property
    def deleted(self) -> bool:
        """Whether the aggregate is gone for every reader. Override it where an aggregate can be deleted."""
        return False

    def changes(self) -> Changes[State] | None:
        """The new state and its numbered events, or None when there is nothing to store.

        Event ids are made here: a unit of work asks once and keeps the answer.
        """
        happened = [each for each in self._happened if not (self._is_new and isinstance(each, str))]
        if not self._is_new and not happened:
            return None
        first = 1 if self._is_new else self._state.last_sequence + 1
        state = self._final_state(first + len(happened) - (0 if self._is_new else 1))
        tell: list[Numbered] = [lambda sequence: self._created(state, sequence)] if self._is_new else []
        tell += [self._teller(each, state) for each in happened]
        return Changes(state, tuple(make(sequence) for sequence, make in enumerate(tell, start=first)))

    def _final_state(self, last_sequence: int) -> State:
        changed = {each for each in self._happened if isinstance(each, str)}
        stamps = {} if self._is_new or self._changed_at is None else self._stamps(changed, self._changed_at)
        return self._state.model_copy(update={**stamps, "last_sequence": last_sequence})

    def _teller(self, happened: str | Numbered, state: State) -> Numbered:
        if not isinstance(happened, str):
            return happened
        at = self._changed_at
        assert at is not None, "a changed property has its time"
        return lambda sequence: self._updated(happened, state, sequence, at)

    def _set(self, name: str, value: object, at: datetime) -> None:
        """Change one property of the state, which raises its event unless the property holds that value anyway."""
        if getattr(self._state, name) == value:
            return
        self._state = self._state.model_copy(update={name: value})
        if getattr(self._loaded, name) == value:
            self._happened.remove(name)
        else:
            if name not in self._happened:
                self._happened.append(name)
            self._changed_at = at

    def _raise(self, event: Numbered, **update: object) -> None:
        """Raise an event that no difference of properties explains; ``update`` is what it changes of the state."""
        self._state = self._state.model_copy(update=update)
        self._happened.append(event)

    @abstractmethod
    def _created(self, state: State, sequence: int) -> DomainEvent:
        """The event that says that the aggregate exists."""

    def _updated(self, name: str, state: State, sequence: int, at: datetime) -> DomainEvent:
        """The event that says what this property became. For aggregates that change through :meth:`_set`."""
        raise AssertionError(f"no event says that {name} of a {self.aggregate_type} changed")

    def _stamps(self, changed: Collection[str], at: datetime) -> Mapping[str, Any]:
        """What else these changes make of the state, such as the time of the last one."""
        return {}
