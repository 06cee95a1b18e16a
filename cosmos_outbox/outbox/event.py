"""Defines domain events (immutable and self-contained), and builds them from an aggregate's declarations.

Names are snake_case in Python and camelCase on the wire. An unknown field is kept: a later version of the service has
stored it. In a caller's input unknown fields are refused (``extra="forbid"`` of pydantic's validation).

An event of a simple change is declared by name or by class: its fields are filled from the state by name. The class of
an event declared by name is created here. A mistake in a declaration is an error when the aggregate's class is defined,
not when its first event is raised.

The published form of an event is created once, at the commit: every reader gets what is stored then. A form is a model
that an aggregate declares for one of its events, with the published fields; the fields of every event (id, action,
sequence, time, the aggregate's id) are added. So the state can change without effect on subscribers.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema, create_model
from pydantic.alias_generators import to_camel, to_snake

from cosmos_outbox.kernel.clock import new_id
from cosmos_outbox.kernel.dataclass import dataclass

CAUSE = frozenset({"correlationId", "traceparent", "tracestate", "causationId", "causedBy"})
"""The names in an event's data that describe its cause; no model of an event has them."""

ENVELOPE = frozenset({"id", "action", "sequence", "createdAt"}) | CAUSE
"""The names in an event's data that the outbox itself fills."""


def _text(at: datetime) -> str:
    """Formats a time in UTC without trailing zeros: the only form that JSON libraries rewrite unchanged."""
    text = at.astimezone(UTC).isoformat().removesuffix("+00:00")
    return (text.rstrip("0") if "." in text else text) + "Z"


Timestamp = Annotated[
    datetime,
    PlainSerializer(_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
"""A time in an event or a state. The change feed's host rewrites other forms (``docs/internals/decisions/0015``)."""


class WireModel(BaseModel):
    """An immutable model that reads and writes camelCase, keeps unknown fields, and hides input in its errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


class DomainEvent(WireModel):
    """The fields of every event. A subclass adds the changed values, and the aggregate's id for subscribers.

    An event carries the new values, so that a subscriber needs no earlier event and no call to the service.
    """

    schema_version: ClassVar[int] = 1
    """The version of the event's schema: raised with a change that a subscriber of the previous version cannot read."""

    id: UUID = Field(default_factory=new_id)
    action: str
    """The name of the event, for the filters of subscribers. A subclass fixes it to the name of its class."""
    sequence: int = Field(ge=1)
    """The event's number among all events of its aggregate: 1, 2, 3 … without a gap."""
    created_at: Timestamp
    """The time of the change (UTC)."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Raises TypeError for a field with a name in ``CAUSE``, whose value the outbox would overwrite."""
        if taken := sorted(CAUSE & {each.alias for each in cls.model_fields.values()}):
            raise TypeError(
                f"{cls.__name__}: the outbox itself fills {', '.join(taken)} of an event: take other names"
            )


_OF_EVERY_EVENT = frozenset(DomainEvent.model_fields)

_DELETED = "deleted"
"""The flag whose event carries no value, since no event follows it. Any other flag may be reset."""


@dataclass(frozen=True)
class DeclaredEvent:
    """An event of one type of aggregate, and the source of each of its fields."""

    event: type[DomainEvent]
    id_field: str
    """The field with the aggregate's id, named after its type: ``booking_id``."""
    of_state: tuple[str, ...]
    """The fields that are copied from the state by name."""
    whole: tuple[str, tuple[str, ...]] | None
    """The field named after the aggregate's type, and the properties of the state in it; None: there is none."""

    @classmethod
    def of(cls, event: type[DomainEvent], aggregate_type: str, state: type[BaseModel]) -> "DeclaredEvent":
        """Returns the declaration, checked. Raises TypeError, which describes the correction."""
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
        """Returns the event's values, without its sequence and time."""
        whole = {self.whole[0]: _taken(state, self.whole[1])} if self.whole else {}
        return {self.id_field: aggregate_id, **_taken(state, self.of_state), **whole}


@dataclass(frozen=True)
class Declarations:
    """The events that one type of aggregate declares, each by class or by name."""

    aggregate_type: str
    state: type[BaseModel]
    created: type[DomainEvent] | str | None
    created_payload: type[BaseModel] | None
    changed: Mapping[str, type[DomainEvent] | str]
    module: str
    """The module of the aggregate."""

    def events(self) -> Mapping[str | None, DeclaredEvent]:
        """Returns the events by property; the key None is the creation. Raises TypeError."""
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
                    f"{made[name].event.__name__} reports a change of {name}, and has no such field: add {name}. Only "
                    "the event of a flag needs none"
                )
        return made

    def _of(self, event: type[DomainEvent]) -> DeclaredEvent:
        return DeclaredEvent.of(event, self.aggregate_type, self.state)

    def _created(self, event: type[DomainEvent] | str) -> type[DomainEvent]:
        if isinstance(event, str) and self.created_payload is not None:
            about = f"There is a new {self.aggregate_type}; the event carries all that is published of it."
            return self._made(event, self.created_payload, self.created_payload.model_fields, about)
        if isinstance(event, str) or self.created_payload is not None:
            raise TypeError(
                "created_payload and a created_event that is declared by its name belong together: created_payload is "
                "the model of what the event carries of the state"
            )
        return event

    def _changed(self, event: str, name: str) -> type[DomainEvent]:
        if name == _DELETED:
            about = f"The {self.aggregate_type} is gone for every reader; no later event of it follows."
            return self._made(event, self.state, (), about)
        return self._made(event, self.state, (name,), f"The {self.aggregate_type} has another {name}.")

    def _made(
        self, event: str, model: type[BaseModel], carried: Collection[str], about: str
    ) -> type[DomainEvent]:
        """Creates the class of an event with these fields of a model, each with its type there."""
        if not event.isidentifier():
            raise TypeError(f"{event!r} cannot name an event: take one word, such as BookingMoved")
        id_field = id_field_of(self.aggregate_type)
        if taken := sorted({*carried} & (_OF_EVERY_EVENT | {id_field})):
            raise TypeError(
                f"{event} cannot carry {taken[0]}, which every event has for itself: leave it out, or write the "
                "event's class"
            )
        own_id = self.state.model_fields.get("id")
        fields: dict[str, Any] = {
            "action": (Literal[event], event),
            id_field: (str if own_id is None else own_id.annotation, Field()),
        }
        for name in carried:
            field = model.model_fields[name]
            fields[name] = (
                Annotated[field.annotation, *field.metadata, Field(description=field.description)],
                ...,
            )
        return create_model(event, __base__=DomainEvent, __module__=self.module, __doc__=about, **fields)


def id_field_of(aggregate_type: str) -> str:
    """Returns the name of the field with the aggregate's id in an event: ``booking_id``."""
    return f"{_snake(aggregate_type)}_id"


def _snake(aggregate_type: str) -> str:
    return to_snake(aggregate_type.replace("-", "_"))


def _taken(state: BaseModel, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(state, name) for name in names}


def _model_of(event: type[DomainEvent], name: str) -> type[BaseModel] | None:
    """Returns the model of a field that holds the whole aggregate; None: the field's type is no model."""
    annotation = event.model_fields[name].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _checked(model: type[BaseModel], names: Any, state: type[BaseModel]) -> tuple[str, ...]:
    """Returns the fields to copy from the state. Raises TypeError if it lacks one, or has another type."""
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
                f"{model.__name__} has {name} as {_shown(field.annotation)}, {state.__name__} as "
                f"{_shown(source.annotation)}: make them one type, or write _created or _updated for what differs"
            )
        taken.append(name)
    return tuple(taken)


def _takes(event: frozenset[Any], state: frozenset[Any]) -> bool:
    """Whether values of the state fit the event. None is ignored: many properties are never set back to None."""
    return Any in event or all(
        any(one == other or _is_kind_of(one, other) for other in event) for one in state - {NoneType}
    )


def _is_kind_of(one: Any, other: Any) -> bool:
    return isinstance(one, type) and isinstance(other, type) and issubclass(one, other)


def _members(annotation: Any) -> frozenset[Any]:
    """Returns the types that a value may have, without pydantic's annotations."""
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


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
