"""An event of a simple change is declared by its name or by its class: it carries what the state has under these names.

The class of an event that is declared by its name is made here. A mistake in a declaration is an error when the
aggregate's class is made, not when its first event is raised.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, create_model
from pydantic.alias_generators import to_snake

from cosmos_outbox.outbox.event import DomainEvent

_OF_EVERY_EVENT = frozenset(DomainEvent.model_fields)

_DELETED = "deleted"
"""The flag whose event tells by its name alone, since nothing follows it. Another flag may be taken back."""


@dataclass(frozen=True)
class DeclaredEvent:
    """An event of one type of aggregate, and from where each of its fields comes."""

    event: type[DomainEvent]
    id_field: str
    """The aggregate's id, under the name of its type: ``booking_id``."""
    of_state: tuple[str, ...]
    """What is taken from the state by its name."""
    whole: tuple[str, tuple[str, ...]] | None
    """The field with the name of the aggregate's type, and what it shows of the state; None: there is none."""

    @classmethod
    def of(cls, event: type[DomainEvent], aggregate_type: str, state: type[BaseModel]) -> "DeclaredEvent":
        """The declaration, checked. Raises TypeError, which says what is to be mended."""
        kind, id_field = _snake(aggregate_type), id_field_of(aggregate_type)
        fields = event.model_fields.keys() - _OF_EVERY_EVENT
        if id_field not in fields:
            raise TypeError(
                f"{event.__name__} needs {id_field}, the id of its {aggregate_type}: add {id_field}: UUID, or the type "
                "that the id has"
            )
        shown = _model_of(event, kind) if kind in fields and kind not in state.model_fields else None
        own = _checked(event, fields - {id_field, kind} if shown else fields - {id_field}, state)
        whole = (kind, _checked(shown, shown.model_fields.keys(), state)) if shown else None
        if event.model_fields["action"].default != event.__name__:
            raise TypeError(
                f'{event.__name__} needs its own name: add action: Literal["{event.__name__}"] = "{event.__name__}"'
            )
        return cls(event, id_field, own, whole)

    def values(self, aggregate_id: str, state: BaseModel) -> dict[str, Any]:
        """What the event carries beside its sequence and its time."""
        whole = {self.whole[0]: _taken(state, self.whole[1])} if self.whole else {}
        return {self.id_field: aggregate_id, **_taken(state, self.of_state), **whole}


@dataclass(frozen=True)
class Declarations:
    """The events that one type of aggregate declares, each by its class or by its name."""

    aggregate_type: str
    state: type[BaseModel]
    created: type[DomainEvent] | str | None
    created_tells: type[BaseModel] | None
    changed: Mapping[str, type[DomainEvent] | str]
    module: str
    """Of the aggregate."""

    def events(self) -> Mapping[str | None, DeclaredEvent]:
        """The events by property; None: that of the creation. Raises TypeError."""
        made: dict[str | None, DeclaredEvent] = {}
        if self.created is not None:
            made[None] = self._of(self._created(self.created))
            if "created_at" not in self.state.model_fields:
                raise TypeError(
                    f"{self.state.__name__} needs created_at, the time of {made[None].event.__name__}: add "
                    "created_at: Timestamp, or write _created"
                )
        for name, event in self.changed.items():
            field = self.state.model_fields.get(name)
            if field is None:
                raise TypeError(
                    f"changed_events names {name}, which {self.state.__name__} has not: name a property of the state"
                )
            made[name] = self._of(self._changed(event, name) if isinstance(event, str) else event)
            if name not in made[name].of_state and field.annotation is not bool:
                raise TypeError(
                    f"{made[name].event.__name__} does not tell {name}, though it is its event: add {name} to it. Only "
                    "the event of a flag tells by its name alone"
                )
        return made

    def _of(self, event: type[DomainEvent]) -> DeclaredEvent:
        return DeclaredEvent.of(event, self.aggregate_type, self.state)

    def _created(self, event: type[DomainEvent] | str) -> type[DomainEvent]:
        if isinstance(event, str) and self.created_tells is not None:
            about = f"There is a new {self.aggregate_type}; the event carries all that is told of it."
            return self._made(event, self.created_tells, self.created_tells.model_fields, about)
        if isinstance(event, str) or self.created_tells is not None:
            raise TypeError(
                "created_tells and a created_event that is declared by its name belong together: created_tells is the "
                "model of what the event tells of the state"
            )
        return event

    def _changed(self, event: str, name: str) -> type[DomainEvent]:
        if name == _DELETED:
            about = f"The {self.aggregate_type} is gone for every reader; no later event of it follows."
            return self._made(event, self.state, (), about)
        return self._made(event, self.state, (name,), f"The {self.aggregate_type} has another {name}.")

    def _made(
        self, event: str, model: type[BaseModel], told: Collection[str], about: str
    ) -> type[DomainEvent]:
        """The class of an event that tells these fields of a model, each of the type that it has there."""
        if not event.isidentifier():
            raise TypeError(f"{event!r} cannot name an event: take one word, such as BookingMoved")
        id_field = id_field_of(self.aggregate_type)
        if taken := sorted({*told} & (_OF_EVERY_EVENT | {id_field})):
            raise TypeError(
                f"{event} cannot tell {taken[0]}, which every event has for itself: leave it out, or write the event's "
                "class"
            )
        own_id = self.state.model_fields.get("id")
        fields: dict[str, Any] = {
            "action": (Literal[event], event),
            id_field: (str if own_id is None else own_id.annotation, Field()),
        }
        for name in told:
            field = model.model_fields[name]
            fields[name] = (
                Annotated[field.annotation, *field.metadata, Field(description=field.description)],
                ...,
            )
        return create_model(event, __base__=DomainEvent, __module__=self.module, __doc__=about, **fields)


def id_field_of(aggregate_type: str) -> str:
    """The field in which an event has the id of its aggregate: ``booking_id``."""
    return f"{_snake(aggregate_type)}_id"


def _snake(aggregate_type: str) -> str:
    return to_snake(aggregate_type.replace("-", "_"))


def _taken(state: BaseModel, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(state, name) for name in names}


def _model_of(event: type[DomainEvent], name: str) -> type[BaseModel] | None:
    """The model of a field that shows the whole aggregate; None: the field is no model."""
    annotation = event.model_fields[name].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _checked(model: type[BaseModel], names: Any, state: type[BaseModel]) -> tuple[str, ...]:
    """The fields that are taken from the state. Raises TypeError: it lacks one, or has another type."""
    taken = []
    for name in sorted(names):
        field, source = model.model_fields[name], state.model_fields.get(name)
        if source is None:
            if not field.is_required():
                continue
            raise TypeError(
                f"{model.__name__} has {name}, which {state.__name__} has not: add it there, give it a default, or "
                "raise the event with _raise"
            )
        if not _takes(_members(field.annotation), _members(source.annotation)):
            raise TypeError(
                f"{model.__name__} has {name} as {_told(field.annotation)}, {state.__name__} as "
                f"{_told(source.annotation)}: make them one type, or write _created or _updated for what differs"
            )
        taken.append(name)
    return tuple(taken)


def _takes(event: frozenset[Any], state: frozenset[Any]) -> bool:
    """Whether values of the state fit. None does not count: many a property is never set back to None."""
    return Any in event or all(
        any(one == other or _is_kind_of(one, other) for other in event) for one in state - {NoneType}
    )


def _is_kind_of(one: Any, other: Any) -> bool:
    return isinstance(one, type) and isinstance(other, type) and issubclass(one, other)


def _members(annotation: Any) -> frozenset[Any]:
    """The types that a value may have, without what only pydantic reads of them."""
    plain = _plain(annotation)
    return plain if isinstance(plain, frozenset) else frozenset({plain})


def _plain(annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain(arguments[0])
    if origin in (Union, UnionType):
        return frozenset().union(*(_members(each) for each in arguments))
    if origin is None:
        return annotation
    return (origin, *map(_plain, arguments))


def _told(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
