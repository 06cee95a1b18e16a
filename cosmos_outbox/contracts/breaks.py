"""A schema may follow another under the same version only if every document of the new one fits the old one.

So a reader that was made for the old schema reads what is written by the new one, and knows what it finds there:

====================  ==============================================================================================
``removed``           A field that was told is gone: a reader that showed it shows nothing, and under its name anything
                      may come.
``may-be-missing``    A field that was always there may be missing.
``other-type``        A value may be of another type, or null. A number that becomes an integer is no other type.
``new-value``         An enumeration has a new value. Readers know the values that they were told of: generated types
                      and ``match`` are closed. Of a new field they can think nothing; of a new value they must.
``wider``             A limit, a pattern or a format lets more through. One that lets less through breaks nobody.
``not-closed``        An object that was closed may have other fields.
``not-understood``    A schema says something in a way that is not understood here, and not the same as before.
====================  ==============================================================================================

What is new beside what was told breaks nobody, since readers ignore unknown fields: a new field, required or not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cosmos_outbox.contracts.alternatives import (
    NOT_UNDERSTOOD,
    OF_TYPE,
    Schema,
    alternatives,
    as_text,
    resolved,
    type_of,
)

_LOWEST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_HIGHEST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_ALIKE = ("pattern", "format", "multipleOf", "contentEncoding", "contentMediaType", "uniqueItems")

Alternative = Mapping[str, Any]


def breaks(old: Schema, new: Schema) -> list[str]:
    """What of the new schema breaks a reader of the old one, a line each; none: nothing does. Raises ValueError."""
    if as_text(old) == as_text(new):
        return []
    return [*dict.fromkeys(_Comparison(old, new).of(old, new, ""))]


def breaks_inside(schemas: tuple[Schema, Schema], documents: tuple[Schema, Schema], name: str) -> list[str]:
    """As :func:`breaks`, of an old and a new schema that refer to parts of documents, under the name of the place."""
    return [*dict.fromkeys(_Comparison(*documents).of(*schemas, f".{name}"))]


@dataclass
class _Comparison:
    old: Schema
    new: Schema
    _met: set[tuple[int, int]] = field(default_factory=set)
    """Schemas that refer to themselves: what is being compared is not compared again inside itself."""

    def of(self, old: Schema, new: Schema, path: str) -> list[str]:
        old, new = resolved(old, self.old), resolved(new, self.new)
        if (id(old), id(new)) in self._met:
            return []
        self._met.add((id(old), id(new)))
        try:
            return self._of(alternatives(old, self.old), alternatives(new, self.new), path)
        finally:
            self._met.discard((id(old), id(new)))

    def _of(self, old: Sequence[Alternative], new: Sequence[Alternative], path: str) -> list[str]:
        found, others = [], []
        for each in new:
            same = [
                one for one in old if each["type"] == one["type"] or (each["type"], one["type"]) == _WHOLE
            ]
            if not same:
                others.append(each["type"])
                continue
            fewest: list[str] = min([self._alternative(one, each, path) for one in same], key=len)
            found += fewest
        return [*_other_types(old, others, path), *found]

    def _alternative(self, old: Alternative, new: Alternative, path: str) -> list[str]:
        if "enum" in new:
            fits = old == new or _fits(new["enum"], old)
            return [] if fits else [f"{_at(path)} may be {as_text(new['enum'])} now (new-value)"]
        if "enum" in old:
            return [f"{_at(path)} may be any {new['type']} now, and had given values (new-value)"]
        return [
            *(f"{_at(path)}: {told} (wider)" for told in _wider(old, new)),
            *_not_understood(old, new, path),
            *(self._object(old, new, path) if new["type"] == "object" else []),
            *(self._array(old, new, path) if new["type"] == "array" else []),
        ]

    def _object(self, old: Alternative, new: Alternative, path: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        always = new.get("required", ())
        for name, schema in before.items():
            if name not in after:
                yield f"{_at(_field(path, name))} is gone (removed)"
                continue
            if name in old.get("required", ()) and name not in always:
                yield f"{_at(_field(path, name))} may be missing now (may-be-missing)"
            yield from self.of(schema, after[name], _field(path, name))
        for name in sorted({*old.get("required", ())} - {*always} - before.keys()):
            yield f"{_at(_field(path, name))} may be missing now (may-be-missing)"
        rest = old.get("additionalProperties", True)
        if rest is False:
            for name in sorted(after.keys() - before.keys()):
                yield f"{_at(_field(path, name))} is new, and no other field was to be there (not-closed)"
            if new.get("additionalProperties", True) is not False:
                yield f"{_at(path)} may have other fields now, and had none (not-closed)"
        elif rest is not True:
            for name in sorted(after.keys() - before.keys()):
                yield from self.of(rest, after[name], _field(path, name))
            yield from self.of(rest, new.get("additionalProperties", True), _field(path, "*"))

    def _array(self, old: Alternative, new: Alternative, path: str) -> Iterator[str]:
        before, after = old.get("prefixItems", []), new.get("prefixItems", [])
        rest, more = old.get("items", True), new.get("items", True)
        for place in range(max(len(before), len(after))):
            one = before[place] if place < len(before) else rest
            other = after[place] if place < len(after) else more
            yield from self.of(one, other, f"{path}[{place}]")
        yield from self.of(rest, more, f"{path}[]")


_WHOLE = ("integer", "number")


def _at(path: str) -> str:
    return path.removeprefix(".") or "the event"


def _field(path: str, name: str) -> str:
    return f"{path}.{name}"


def _other_types(old: Sequence[Alternative], others: Sequence[str], path: str) -> Iterator[str]:
    if others == ["null"]:
        yield f"{_at(path)} may be null now (other-type)"
    elif others:
        now, before = dict.fromkeys(others), dict.fromkeys(each["type"] for each in old)
        told = "anything" if {*now} | {*before} >= OF_TYPE.keys() else " or ".join(now)
        yield f"{_at(path)} may be {told} now, and was {' or '.join(before) or 'nothing'} (other-type)"


def _wider(old: Alternative, new: Alternative) -> Iterator[str]:
    for name in old.keys() & {*_LOWEST, *_HIGHEST, *_ALIKE}:
        before, after = old[name], new.get(name)
        if before is False:  # uniqueItems
            continue
        if after is None or (
            (name in _LOWEST and after < before)
            or (name in _HIGHEST and after > before)
            or (name in _ALIKE and as_text(after) != as_text(before))
        ):
            yield f"{name} {as_text(before)} " + ("is gone" if after is None else f"is {as_text(after)} now")


def _not_understood(old: Alternative, new: Alternative, path: str) -> Iterator[str]:
    before, after = old.get(NOT_UNDERSTOOD, {}), new.get(NOT_UNDERSTOOD, {})
    for name in sorted(before.keys() | (after.keys() & {"patternProperties"})):
        told = as_text(before.get(name))
        if told != as_text(after.get(name)) or "$ref" in told or name.startswith("unevaluated"):
            yield f"{_at(path)}: {name} cannot be compared (not-understood)"


def _fits(value: Any, old: Alternative) -> bool:
    """Whether a value of an enumeration is one that the old schema surely had."""
    if "enum" in old:
        return old.keys() == {"type", "enum"} and as_text(value) == as_text(old["enum"])
    if {"format", "contentEncoding", "contentMediaType", "multipleOf", NOT_UNDERSTOOD} & old.keys():
        return False
    if type_of(value) in ("object", "array"):
        return old.keys() == {"type"}
    if isinstance(value, str):
        long_enough = old.get("minLength", 0) <= len(value) <= old.get("maxLength", len(value))
        return long_enough and re.search(old.get("pattern", ""), value) is not None
    if isinstance(value, bool) or value is None:
        return True
    return bool(
        old.get("minimum", value) <= value <= old.get("maximum", value)
        and old.get("exclusiveMinimum", value - 1) < value < old.get("exclusiveMaximum", value + 1)
    )
