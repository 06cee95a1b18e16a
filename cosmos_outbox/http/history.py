"""What changed of an aggregate, for those who may read it: nothing is told that the aggregate itself does not show.

An event tells new values; what a value was before, an earlier event tells. Who caused a change is not told: what is
stored of that is a digest, and one of a name that is easy to guess tells the name. Where an event is, and what became
of it, is the operators' matter.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from cosmos_outbox.http.components import Components, Schema
from cosmos_outbox.http.message import Answer
from cosmos_outbox.http.parameters import TEXT
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.http.validation import form_of, known_value
from cosmos_outbox.outbox.aggregate import STORED
from cosmos_outbox.outbox.event import Timestamp
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.past_changes import PastPage

_TELL_NO_CHANGE = frozenset({"id", "createdAt", "modifiedAt"})
"""Which aggregate it is, and when it changed, the whole answer tells."""
_UNREADABLE = object()
"""A value that is not told: it is not in the form that callers see."""
_AT: TypeAdapter[Any] = TypeAdapter(Timestamp)

Values = Mapping[str, Any]


@dataclass(frozen=True)
class ToldChanges:
    """The changes of these properties, by their names on the wire."""

    properties: Mapping[str, FieldInfo]

    def answer(self, page: PastPage, next_link: str | None) -> Answer:
        """200 with a page of changes, the newest first."""
        items: list[Mapping[str, Any]] = []
        before: dict[str, Any] = {}
        for event in reversed([*page.events, *page.earlier]):
            values = self._values(event)
            items.append(_item(event, values, before))
            before |= values
        told = {
            "items": items[::-1][: len(page.events)], "completeFrom": page.complete_from,
            "continuationToken": page.continuation_token, "nextLink": next_link,
        }  # fmt: skip
        return json_response(200, told)

    def described(self, name: str, components: Components) -> Schema:
        """The schema of such an answer about an aggregate that has this name."""
        value: Schema = {"examples": ["Jane"]}
        field: Schema = {"type": "string", "enum": [each for each in self.properties if self._counts(each)]}
        change: Schema = {
            "type": "object",
            "properties": {
                "field": field,
                "from": value | {"description": "What it was. Missing where no event that is left tells it."},
                "to": value | {"description": "What it has become. Missing where it is of an old form."},
            },
            "required": ["field"],
        }
        item: dict[str, Schema] = {
            "sequence": {"type": "integer", "minimum": 1, "description": "1, 2, 3 … without a gap."},
            "at": {"type": "string", "format": "date-time"},
            "type": TEXT | {"description": "As messages tell it: the CloudEvents type."},
            "changes": {"type": "array", "items": components.named(f"{name}FieldChange", change)},
        }
        items = components.named(
            f"{name}Change", {"type": "object", "properties": item, "required": list(item)}
        )
        text: Schema = {"type": ["string", "null"]}
        page: dict[str, Schema] = {
            "items": {"type": "array", "items": items},
            "completeFrom": {
                "type": "integer", "minimum": 1,
                "description": "This page and those before it tell of this sequence and all that follow. On the last "
                "page: older events are not kept any more; 1: there are none.",
            },
            "continuationToken": text, "nextLink": text,
        }  # fmt: skip
        return components.named(
            f"{name}History", {"type": "object", "properties": page, "required": list(page)}
        )

    def _counts(self, name: str) -> bool:
        return name in self.properties and name not in _TELL_NO_CHANGE

    def _values(self, event: OutboxEvent) -> dict[str, Any]:
        """What an event tells of the properties, by itself or in the aggregate as it was."""
        whole = event.data.get(event.aggregate.type)
        told = {**(whole if isinstance(whole, Mapping) else {}), **event.data}
        return {name: self._shown(name, value) for name, value in told.items() if self._counts(name)}

    def _shown(self, name: str, stored: Any) -> Any:
        """A value as callers see it, without what only a later version knows."""
        form = self._forms[name]
        try:
            value = form.validate_python(stored, context=STORED, by_alias=True, by_name=False)
        except ValidationError:
            return _UNREADABLE
        return known_value(value, form.dump_python(value, mode="json", by_alias=True))

    @cached_property
    def _forms(self) -> Mapping[str, TypeAdapter[Any]]:
        return {name: form_of(field) for name, field in self.properties.items()}


def _item(event: OutboxEvent, values: Values, before: Values) -> Mapping[str, Any]:
    return {
        "sequence": event.sequence,
        "at": _AT.dump_python(event.created_at, mode="json"),
        "type": event.action,
        "changes": [*_changes(values, before, is_first=event.sequence == 1)],
    }


def _changes(values: Values, before: Values, *, is_first: bool) -> Iterator[Mapping[str, Any]]:
    for name, value in values.items():
        was = before.get(name, _UNREADABLE)
        if (is_first and value is None) or (was is not _UNREADABLE and was == value):
            continue
        told = {"from": was, "to": value}
        yield {"field": name} | {key: each for key, each in told.items() if each is not _UNREADABLE}
