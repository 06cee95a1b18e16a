"""What is published of an event is made once, at the commit: what is stored then is what every reader gets, for good.

A form is a model that an aggregate declares for one of its events. It has the fields that others get of it; what every
event has (id, action, sequence, time, the aggregate's id) stays as it is. So the state can change without its readers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, create_model

from cosmos_outbox.outbox.event import DomainEvent

_OF_EVERY_EVENT = frozenset(DomainEvent.model_fields)


@dataclass(frozen=True)
class PublishedForm:
    """The form of one event, and the class of what is published of it."""

    form: type[BaseModel]
    published: type[DomainEvent]

    @classmethod
    def of(cls, event: type[DomainEvent], form: type[BaseModel], id_field: str) -> "PublishedForm":
        """The form, checked. Raises TypeError, which says what is to be mended."""
        kept = _OF_EVERY_EVENT | {id_field}
        if not callable(getattr(form, "of", None)):
            raise TypeError(
                f"{form.__name__} needs a classmethod of(event, state), which makes what is published of a "
                f"{event.__name__}: add it"
            )
        if taken := sorted(kept & form.model_fields.keys()):
            raise TypeError(
                f"{form.__name__} cannot tell {taken[0]}, which every event has for itself: leave it out"
            )
        fields: dict[str, Any] = {
            name: (field.annotation, field)
            for name, field in event.model_fields.items()
            if name in kept and name != "id"
        }
        made = create_model(
            event.__name__,
            __base__=(form, DomainEvent),
            __module__=form.__module__,
            __doc__=form.__doc__ or event.__doc__,
            **fields,
        )
        published = cast("type[DomainEvent]", made)
        published.schema_version = getattr(form, "schema_version", event.schema_version)
        return cls(form, published)

    def made(self, event: DomainEvent, state: BaseModel) -> DomainEvent:
        """What is published of an event, of the state that is stored with it."""
        told = self.form.of(event, state)  # type: ignore[attr-defined]  # checked when it was declared
        if not isinstance(told, self.form):
            raise TypeError(
                f"of() of {self.form.__name__} has made a {type(told).__name__}: return a {self.form.__name__}"
            )
        kept = {name: getattr(event, name) for name in self.published.model_fields.keys() & dict(event)}
        return self.published.model_construct(**{**kept, **dict(told)})


PublishedForms = Mapping[type[DomainEvent] | str, type[BaseModel]]
"""By the event's class, or by its name where it is declared by that."""


def forms_of(
    declared: PublishedForms, events: Mapping[str, type[DomainEvent]], id_field: str
) -> Mapping[type[DomainEvent], PublishedForm]:
    """The forms by the classes of their events. ``events``: those that are declared. Raises TypeError."""
    made = {}
    for key, form in declared.items():
        event = events.get(key) if isinstance(key, str) else key
        if event is None:
            raise TypeError(
                f"published_forms names {key}, which no declaration makes: name a declared event, or the class of one "
                "that is raised by hand"
            )
        made[event] = PublishedForm.of(event, form, id_field)
    return made
