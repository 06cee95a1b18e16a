"""Defines the base of aggregates, which numbers their events: ``sequence`` runs 1, 2, 3 … without a gap for life.

A changed property becomes an event only when a unit of work collects the changes. So a property that was set twice
raises one event, with the last value; a property that was set back raises none; and a new aggregate raises only the
event of its creation. An event that is not derived from a property, such as a task to be started, is raised at once.

Beside it stands what a caller gives and gets with a change: its origin, precondition, version and receipt.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ValidationInfo

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import PreconditionFailed
from cosmos_outbox.outbox.event import (
    Declarations,
    DeclaredEvent,
    DomainEvent,
    WireModel,
    id_field_of,
)


class AggregateState(WireModel):
    """The stored part of an aggregate. ``last_sequence`` is the sequence of its newest event.

    A stored state can be read by the previous and the next version of the service: an unknown field is kept and stored
    again, and later rules for callers' input are not applied to it (see :data:`STORED`).
    """

    last_sequence: int = 0


STORED: dict[str, Any] = {"stored": True}
"""The validation context of a state that is read from the store."""


def input_rule(check: Callable[[Any], Any]) -> AfterValidator:
    """Returns a field annotation that checks callers' input: ``check`` returns the value or raises ValueError.

    A stored value is not checked: it was accepted once, perhaps under other rules. A limit of pydantic's own
    (``max_length``, ``le``) would make stored values unreadable as soon as it is lowered.
    """

    def validator(value: Any, info: ValidationInfo) -> Any:
        return value if info.context is STORED else check(value)

    return AfterValidator(validator)


StateT = TypeVar("StateT", bound=AggregateState)

_CHANGED_IN_PLACE: Mapping[Any, str] = {
    list: "tuple[...]",
    dict: "Mapping[...] of collections.abc",
    set: "frozenset[...]",
}
"""The types whose values can be changed unseen, and what to write instead."""


def check_state(state: type[BaseModel], aggregate: str) -> None:
    """Check the model of an aggregate's state. Raises TypeError, which describes the correction."""
    if not issubclass(state, AggregateState):
        raise TypeError(f"{aggregate}: derive {state.__name__} from AggregateState, which numbers its events")
    for name, each in state.model_fields.items():
        if found := _changeable(each.annotation):
            raise TypeError(
                f"{aggregate}: {name} of {state.__name__} is a {found.__name__}, which can be changed in place, and no "
                f"event would be raised: write {_CHANGED_IN_PLACE[found]}"
            )


def _changeable(annotation: Any) -> type | None:
    if annotation in _CHANGED_IN_PLACE:
        return cast(type, annotation)
    origin = get_origin(annotation)
    if origin in _CHANGED_IN_PLACE:
        return cast(type, origin)
    return next(filter(None, map(_changeable, get_args(annotation))), None)


def check_event(event: DomainEvent, aggregate_type: str) -> None:
    """Check an event as it was made. Raises TypeError, which describes the correction."""
    fields, id_field = type(event).model_fields, id_field_of(aggregate_type)
    if event.model_extra:
        raise TypeError(
            f"{type(event).__name__} has no {', '.join(sorted(event.model_extra))}: add the field to its class, or "
            f"correct the name: there are {', '.join(sorted(fields))}"
        )
    if id_field not in fields:
        raise TypeError(
            f"{type(event).__name__} does not name its {aggregate_type}: add {id_field}, so that a subscriber knows it"
        )


MODIFIED_AT = "modified_at"
"""The property of a state that each change sets, if it is declared. An API returns it as ``Last-Modified``."""

Numbered = Callable[[int], DomainEvent]
"""Creates an event with the given sequence."""


@dataclass(frozen=True)
class Changes(Generic[StateT]):
    """One aggregate's part of a unit of work: the new state, and the events that describe the changes."""

    state: StateT
    events: tuple[DomainEvent, ...]


class Aggregate(ABC, Generic[StateT]):
    """Holds the state as subscribers know it, the current state, and the changes between the two, in order.

    A subclass sets ``aggregate_type`` and ``state_type`` (the model of its state), and changes its state only through
    :meth:`_set` and :meth:`_raise`. It declares the events of its changes in ``created_event`` and ``changed_events``,
    or makes those that no declaration can fill in :meth:`_created` and :meth:`_updated`.
    """

    aggregate_type: ClassVar[str]
    """The type's name in stored documents and messages; never change it once events are stored."""
    state_type: ClassVar[type[AggregateState]]
    created_event: ClassVar[type[DomainEvent] | str | None] = None
    """The event of the creation: its name, with ``created_payload``, or a class of your own. The fields of a class are
    filled from the state by name; a field with the name of the aggregate's type, such as ``booking``, gets the part
    of the state that its model has."""
    created_payload: ClassVar[type[BaseModel] | None] = None
    """The model of the state's part that a ``created_event`` declared by name carries."""
    changed_events: ClassVar[Mapping[str, type[DomainEvent] | str]] = {}
    """The event of each property that :meth:`_set` changes: its name, or a class that is filled in the same way. An
    event declared by name carries the property; that of ``deleted`` carries nothing else."""
    found_by: ClassVar[Sequence[str]] = ()
    """The properties of the state by which a list can be filtered; the container indexes each."""
    kept_after_deletion: ClassVar[Sequence[str]] = ()
    """Properties that a deleted aggregate keeps beside ``id``, ``deleted``, times and last sequence, such as the parts
    of its id or partition key. The deletion erases all others, so name no personal ones."""
    _declared: ClassVar[Mapping[str | None, DeclaredEvent]] = {}
    _by_hand: ClassVar[bool] = False
    """Whether the subclass overrides :meth:`_updated`."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Checks the declarations. Raises TypeError, which describes the correction."""
        super().__init_subclass__(**arguments)
        if (cls.due is not Aggregate.due) != cls.can_be_due():
            raise TypeError(
                f"{cls.__name__}: due says when, and on_due what happens then: write both, or neither"
            )
        if not (hasattr(cls, "aggregate_type") and hasattr(cls, "state_type")):
            return
        check_state(cls.state_type, cls.__name__)
        if unknown := {*cls.found_by} - cls.state_type.model_fields.keys():
            raise TypeError(
                f"{cls.__name__}: found_by names {', '.join(sorted(unknown))}, and the state has not"
            )
        cls._by_hand = cls._updated is not Aggregate._updated
        try:
            cls._declared = Declarations(
                cls.aggregate_type,
                cls.state_type,
                cls.created_event if cls._created is Aggregate._created else None,
                cls.created_payload,
                cls.changed_events,
                cls.__module__,
            ).events()
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        if None not in cls._declared and cls._created is Aggregate._created:
            raise TypeError(
                f"{cls.__name__}: no event says that a {cls.aggregate_type} exists: set created_event, or write "
                "_created"
            )

    def __init__(self, state: StateT, *, is_new: bool) -> None:
        self._published_state = state
        self._state = state
        self._is_new = is_new
        self._happened: list[str | Numbered] = []
        self._changed_at: datetime | None = None

    @classmethod
    def load(cls, state: StateT) -> Self:
        """Returns the aggregate with a stored state."""
        return cls(state, is_new=False)

    @classmethod
    def undeclared(cls) -> Sequence[str]:
        """Returns what the class still has to declare before its aggregates can be stored."""
        needed = [name for name in ("aggregate_type", "state_type") if not hasattr(cls, name)]
        return [*needed, *sorted(cls.__abstractmethods__)]

    @classmethod
    def declared_events(cls) -> Sequence[type[DomainEvent]]:
        """Returns the classes of the declared events, that of the creation first."""
        return [*dict.fromkeys(each.event for each in cls._declared.values())]

    @property
    @abstractmethod
    def aggregate_id(self) -> str:
        """The aggregate's id, unique within its type: 1 to 128 characters, none of them / \\ ? or #."""

    @property
    def partition_key(self) -> str:
        """The partition key of the aggregate's documents. Aggregates with one partition key can share a transaction."""
        return self.aggregate_id

    @property
    def key(self) -> AggregateKey:
        """Type and id."""
        return AggregateKey(self.aggregate_type, self.aggregate_id)

    @property
    def state(self) -> StateT:
        """The current state, including changes."""
        return self._state

    @property
    def is_new(self) -> bool:
        """Whether the aggregate was created and not loaded from the store."""
        return self._is_new

    @property
    def deleted(self) -> bool:
        """Whether the aggregate is deleted for every reader. Override it if aggregates can be deleted."""
        return False

    @property
    def due(self) -> datetime | None:
        """The time, with a zone, at which :meth:`on_due` is called, computed from the state; None: never.

        It is stored with each change, so a change moves or cancels it. An aggregate that was stored under another rule
        gets the new one with its next change.
        """
        return None

    def on_due(self, *, at: datetime) -> None:
        """Changes the aggregate when ``due`` has passed; afterwards ``due`` must be later, or None.

        ``at``: the current time (UTC), usually some seconds after ``due``, after an outage much later. The change is
        stored once, like any other; the method may be called again, on a newer state, and must do no I/O.
        """
        raise NotImplementedError

    @classmethod
    def can_be_due(cls) -> bool:
        """Whether the class overrides :meth:`on_due`."""
        return cls.on_due is not Aggregate.on_due

    def changes(self) -> Changes[StateT] | None:
        """Returns the new state and its numbered events; None: there is nothing to store.

        Each call creates new event ids, so a unit of work calls it once and keeps the result.
        """
        happened = [each for each in self._happened if not (self._is_new and isinstance(each, str))]
        if not self._is_new and not happened:
            return None
        first = 1 if self._is_new else self._state.last_sequence + 1
        happened_in_order = [
            each if isinstance(each, str) else each(sequence)
            for sequence, each in enumerate(happened, start=first + (1 if self._is_new else 0))
        ]
        state = self._final_state(
            happened_in_order, first + len(happened_in_order) - (0 if self._is_new else 1)
        )
        events = [self._created(state, first)] if self._is_new else []
        for each in happened_in_order:
            sequence = first + len(events)
            events.append(self._event_of(each, state, sequence) if isinstance(each, str) else each)
        for event in events:
            check_event(event, self.aggregate_type)
        return Changes(state, tuple(events))

    def _final_state(self, happened_in_order: Sequence[str | DomainEvent], last_sequence: int) -> StateT:
        changed = {each for each in happened_in_order if isinstance(each, str)}
        times = [each.created_at for each in happened_in_order if not isinstance(each, str)]
        if changed and self._changed_at is not None:
            times.append(self._changed_at)
        stamps = {} if self._is_new else self._stamps(changed, max(times))
        return self._state.model_copy(update={**stamps, "last_sequence": last_sequence})

    def _event_of(self, name: str, state: StateT, sequence: int) -> DomainEvent:
        assert self._changed_at is not None, "a changed property has its time"
        return self._updated(name, state, sequence, self._changed_at)

    def _set(self, name: str, value: object, at: datetime) -> None:
        """Changes one property of the state. Its event is raised if subscribers know another value.

        ``at``: the time of the change (UTC). Raises TypeError if no event is declared for the property.
        """
        if getattr(self._state, name) == value:
            return
        if not self._by_hand and name not in self._declared:
            raise TypeError(self._undeclared_change(name))
        self._state = self._state.model_copy(update={name: value})
        if getattr(self._published_state, name) == value:
            self._happened.remove(name)
        else:
            if name not in self._happened:
                self._happened.append(name)
            self._changed_at = at

    def _raise(self, event: Numbered, **update: object) -> None:
        """Raises an event that is not derived from a property; ``update``: the properties that change with the event.

        ``event`` creates it with the given sequence: ``lambda sequence: Reminded(sequence=sequence, ...)``.
        The event carries the values in ``update``: pending events of these properties are dropped, and later changes
        are compared with these values.
        """
        self._state = self._state.model_copy(update=update)
        self._published_state = self._published_state.model_copy(update=update)
        self._happened = [*(each for each in self._happened if each not in update), event]

    def _created(self, state: StateT, sequence: int) -> DomainEvent:
        """Returns the event of the creation. Override it if ``created_event`` cannot fill the event."""
        at: datetime = getattr(state, "created_at")  # noqa: B009 - declared: the state of a subclass has it
        return self._filled(self._declared[None], state, sequence, at)

    def _updated(self, name: str, state: StateT, sequence: int, at: datetime) -> DomainEvent:
        """Returns the event of a property's new value. Override it if ``changed_events`` cannot fill the event."""
        if name not in self._declared:
            raise TypeError(self._undeclared_change(name))
        return self._filled(self._declared[name], state, sequence, at)

    def _filled(self, by: DeclaredEvent, state: StateT, sequence: int, at: datetime) -> DomainEvent:
        values = {**by.values(self.aggregate_id, state), "sequence": sequence, "created_at": at}
        return by.event.model_validate(values, by_name=True, context=STORED)

    def _undeclared_change(self, name: str) -> str:
        return f"no event says that {name} of a {self.aggregate_type} changed: add it to changed_events"

    def _stamps(self, changed: Collection[str], at: datetime) -> Mapping[str, Any]:
        """Returns further properties that these changes set; by default ``modified_at``, if the state has it.

        ``changed``: the properties with events of their own; ``at``: the time of the last change.
        """
        return {MODIFIED_AT: at} if MODIFIED_AT in self.state_type.model_fields else {}


A = TypeVar("A", bound=Aggregate[Any])

ETag = str
"""An opaque, quoted version of a stored aggregate, as in HTTP's ``ETag``."""


@dataclass(frozen=True)
class Origin:
    """The cause of a change, by which an event can be traced back to its request."""

    correlation_id: str
    """An id in every event of the change and in its message, such as that of the request; not personal data."""
    traceparent: str | None = None
    """The W3C trace context of the request; None: it has none."""
    tracestate: str | None = None
    """The vendors' part of the trace context, at most 512 characters; never without ``traceparent``."""
    causation_id: str | None = None
    """The id of the event to which a reaction reacts; None: no event caused the change."""
    caused_by: str | None = None
    """The signed-in user, as a text that reveals nothing else, such as a digest; None: unknown."""


@dataclass(frozen=True)
class Versioned(Generic[A]):
    """A stored aggregate and the version that it was read at."""

    aggregate: A
    etag: ETag
    """The opaque, quoted version, as in HTTP's ``ETag``."""


@dataclass(frozen=True)
class Precondition:
    """The versions of an aggregate that a caller allows."""

    if_match: Collection[ETag] = ()
    """The allowed versions; empty: any."""
    refuse: Callable[[Versioned[Any]], bool] | None = None
    """Returns whether one of these is refused nevertheless."""

    def allows(self, found: Versioned[Any]) -> bool:
        """Whether the version is allowed."""
        named = not self.if_match or found.etag in self.if_match
        return named and not (self.refuse and self.refuse(found))

    def check(self, found: Versioned[Any]) -> None:
        """Raises PreconditionFailed for a version that is not allowed."""
        if not self.allows(found):
            raise PreconditionFailed(
                f"{found.aggregate.key} is at another version than the request's conditions allow: read it again and "
                "use its new ETag as it comes, since a weak one matches none"
            )


@dataclass(frozen=True)
class Receipt(Generic[A]):
    """An aggregate that was stored."""

    aggregate: A
    etag: ETag | None
    """Its new version; None: another writer has changed the aggregate since."""
    events: int = 0
    """The number of events that the changes raised; 0: there was nothing to store."""


@dataclass(frozen=True)
class Commit:
    """The result of one transaction: a receipt for each aggregate of the unit of work."""

    receipts: Sequence[Receipt[Any]]

    def receipt(self, aggregate: A) -> Receipt[A]:
        """Returns the receipt of one aggregate. Raises KeyError if it was not part of the unit of work."""
        for receipt in self.receipts:
            if receipt.aggregate.key == aggregate.key:
                return receipt
        raise KeyError(f"{aggregate.key} was not part of this unit of work: add or get it before the commit")


@dataclass(frozen=True)
class Page(Generic[A]):
    """A page of aggregates."""

    items: Sequence[A]
    continuation_token: str | None
    """The token of the next page of the same list; None: this page is the last."""
    etags: Sequence[ETag] = ()
    """The version of each item, in their order."""


LONGEST_REQUEST_SECONDS = 30.0
"""The maximum time of a request with a key, from its claim to the end of its last transaction."""


@dataclass(frozen=True)
class ChangeAnswer(Generic[A]):
    """The result of a change, for the first request and each repetition."""

    sequence: int
    """The aggregate's last sequence after the change."""
    receipt: Receipt[A] | None
    """None: another writer has changed or deleted the aggregate since, and the request did not create it."""
    replayed: bool = False
    """Whether this repeats the answer to an earlier request."""


def _no_status(_: Exception) -> int | None:
    return None


@dataclass(frozen=True)
class KeyedRequest:
    """Identifies a repeatable request for ``create_once`` and ``change_once`` of ``Aggregates``."""

    caller: str
    """The sender: the same key of another caller is another key."""
    key: str
    """The caller's ``Idempotency-Key``; it is stored as a digest for ``IDEMPOTENCY_TTL_SECONDS``."""
    fingerprint: str
    """A digest of what the caller sent, independent of this version's interpretation of it."""
    status_of: Callable[[Exception], int | None] = field(default=_no_status, compare=False)
    """Returns the status of an aggregate's refusal; None: the error is no refusal, but a bug."""

    def of_change(self, aggregate_type: str, aggregate_id: str) -> str:
        """Returns the name of a change's record. A key is scoped to its target (``caller_in_id``, ``target_in_id``)."""
        return digest(json.dumps(["key", self.caller, self.key, aggregate_type, aggregate_id]))

    @property
    def key_digest(self) -> str:
        """The name of the claim. Both digests have a fixed length, so no other caller and key give the same text."""
        return digest(f"{digest(self.caller)} {digest(self.key)}")


def digest(text: str) -> str:
    """Returns a text's SHA-256 digest, stored in place of the text: keys and requests may hold personal data."""
    return hashlib.sha256(text.encode()).hexdigest()
