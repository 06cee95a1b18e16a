"""Which change of an event's schema breaks its readers, and which does not: each rule, by schemas written by hand.

What breaks comes with a document that the new schema allows and the old one does not: the rule forbids nothing that
could never be sent.
"""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cosmos_outbox.contracts.breaks import breaks

Schema = Any

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}


def valid(document: Any, schema: Schema) -> bool:
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(document)


def of(*required: str, closed: bool = False, **properties: Schema) -> Schema:
    return {
        "type": "object", "properties": properties, "required": [*required], "additionalProperties": not closed,
    }  # fmt: skip


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


COLOUR: Schema = {"enum": ["red", "blue"], "type": "string"}
WIDER: Schema = {"enum": ["red", "blue", "green"], "type": "string"}
TREE: Schema = {"$ref": "#/$defs/Tree", "$defs": {"Tree": of("n", n=NUMBER, below={"$ref": "#/$defs/Tree"})}}
OTHER_TREE: Schema = {
    "$ref": "#/$defs/Tree",
    "$defs": {"Tree": of("n", n={"type": "number"}, below={"$ref": "#/$defs/Tree"})},
}

BREAKING = {
    "a field is gone": (of("a", a=TEXT), of(), {"a": 1}, "a is gone (removed)"),
    "an optional field is gone": (of(a=TEXT), of(), {"a": 1}, "a is gone (removed)"),
    "a field of a field is gone": (
        of("c", c=of("n", n=TEXT)), of("c", c=of()), {"c": {}}, "c.n is gone (removed)"),
    "a field becomes optional": (of("a", a=TEXT), of(a=TEXT), {}, "a may be missing now (may-be-missing)"),
    "a field becomes nullable": (
        of("a", a=TEXT), of("a", a=nullable(TEXT)), {"a": None}, "a may be null now (other-type)"),
    "a nullable by a list of types": (
        of("a", a=TEXT), of("a", a={"type": ["string", "null"]}), {"a": None}, "a may be null now (other-type)"),
    "another type": (
        of("a", a=TEXT), of("a", a=NUMBER), {"a": 1}, "a may be integer now, and was string (other-type)"),
    "one more type": (
        of("a", a=TEXT), of("a", a={"anyOf": [TEXT, NUMBER]}), {"a": 1},
        "a may be integer now, and was string (other-type)"),
    "an integer becomes a number": (
        of("a", a=NUMBER), of("a", a={"type": "number"}), {"a": 1.5},
        "a may be number now, and was integer (other-type)"),
    "any type": (of("a", a=TEXT), of("a", a={}), {"a": []}, "a may be anything now, and was string (other-type)"),
    "a type of items": (
        of("a", a={"type": "array", "items": TEXT}), of("a", a={"type": "array", "items": NUMBER}), {"a": [1]},
        "a[] may be integer now, and was string (other-type)"),
    "a type of other fields": (
        {"type": "object", "additionalProperties": NUMBER}, {"type": "object", "additionalProperties": TEXT},
        {"a": "b"}, "* may be string now, and was integer (other-type)"),
    "a type behind a reference": (TREE, OTHER_TREE, {"n": 1, "below": {"n": 1.5}},
        "n may be number now, and was integer (other-type)"),
    "a place of a tuple": (
        {"type": "array", "prefixItems": [TEXT, NUMBER]}, {"type": "array", "prefixItems": [TEXT, TEXT]},
        ["a", "b"], "[1] may be string now, and was integer (other-type)"),
    "a new value": (of("a", a=COLOUR), of("a", a=WIDER), {"a": "green"}, 'a may be "green" now (new-value)'),
    "another constant": (
        of("a", a={"const": "A"}), of("a", a={"const": "B"}), {"a": "B"}, 'a may be "B" now (new-value)'),
    "any value": (
        of("a", a=COLOUR), of("a", a=TEXT), {"a": "x"}, "a may be any string now, and had given values (new-value)"),
    "a value beyond a limit": (
        of("a", a={"type": "string", "maxLength": 2}), of("a", a={"const": "abc"}), {"a": "abc"},
        'a may be "abc" now (new-value)'),
    "a lower minimum": (
        of("a", a={"type": "integer", "minimum": 1}), of("a", a={"type": "integer", "minimum": 0}), {"a": 0},
        "a: minimum 1 is 0 now (wider)"),
    "a limit is gone": (
        of("a", a={"type": "string", "maxLength": 3}), of("a", a=TEXT), {"a": "long"},
        "a: maxLength 3 is gone (wider)"),
    "another pattern": (
        of("a", a={"type": "string", "pattern": "^a"}), of("a", a={"type": "string", "pattern": "^b"}), {"a": "b"},
        'a: pattern "^a" is "^b" now (wider)'),
    "a format is gone": (
        of("a", a={"type": "string", "format": "uuid"}), of("a", a=TEXT), {"a": "x"},
        'a: format "uuid" is gone (wider)'),
    "items may repeat": (
        of("a", a={"type": "array", "uniqueItems": True}), of("a", a={"type": "array"}), {"a": [1, 1]},
        "a: uniqueItems true is gone (wider)"),
    "a closed object is open": (
        of(a=TEXT, closed=True), of(a=TEXT), {"b": 1},
        "the event may have other fields now, and had none (not-closed)"),
    "a closed object has a new field": (
        of(a=TEXT, closed=True), of(a=TEXT, b=TEXT, closed=True), {"b": "x"},
        "b is new, and no other field was to be there (not-closed)"),
    "what is not understood is gone": (
        {"type": "object", "not": {"required": ["a"]}}, {"type": "object"}, {"a": 1},
        "the event: not cannot be compared (not-understood)"),
}  # fmt: skip

HARMLESS = {
    "nothing": (TREE, TREE),
    "a new optional field": (of("a", a=TEXT), of("a", a=TEXT, b=TEXT)),
    "a new field that is always there": (of("a", a=TEXT), of("a", "b", a=TEXT, b=TEXT)),
    "a field is always there now": (of(a=TEXT), of("a", a=TEXT)),
    "a field is never null now": (of("a", a=nullable(TEXT)), of("a", a=TEXT)),
    "a number becomes an integer": (of("a", a={"type": "number"}), of("a", a=NUMBER)),
    "a value less": (of("a", a=WIDER), of("a", a=COLOUR)),
    "a text becomes one of given values": (of("a", a=TEXT), of("a", a=COLOUR)),
    "values within the limits": (of("a", a={"type": "integer", "minimum": 1}), of("a", a={"enum": [1, 2]})),
    "a lower limit": (
        of("a", a={"type": "string", "maxLength": 3}),
        of("a", a={"type": "string", "maxLength": 2}),
    ),
    "a new limit": (of("a", a=TEXT), of("a", a={"type": "string", "format": "uuid"})),
    "an open object is closed": (of(a=TEXT), of(a=TEXT, closed=True)),
    "a reference in place of what it says": (
        of("a", a=of("b", b=TEXT)),
        {**of("a", a={"$ref": "#/$defs/A"}), "$defs": {"A": of("b", b=TEXT)}},
    ),
    "values in another order, by alternatives": (
        of("a", a=COLOUR),
        of("a", a={"anyOf": [{"const": "blue"}, {"const": "red"}]}),
    ),
    "another description": (of("a", a={**TEXT, "description": "x"}), of("a", a={**TEXT, "title": "y"})),
    "one of a choice": (of("a", a={"anyOf": [TEXT, of("b", b=NUMBER)]}), of("a", a=of("b", b=NUMBER))),
    "a tree with one field more": (
        TREE,
        {"$ref": "#/$defs/T", "$defs": {"T": of("n", n=NUMBER, below={"$ref": "#/$defs/T"}, note=TEXT)}},
    ),
}


@pytest.mark.parametrize("change", BREAKING)
def test_what_breaks_a_reader_is_told_in_one_line(change: str) -> None:
    old, new, document, told = BREAKING[change]
    assert breaks(old, new) == [told]
    assert valid(document, new)
    assert not valid(document, old) or told.endswith("(removed)"), "what is gone, a reader misses"


@pytest.mark.parametrize("change", BREAKING)
def test_the_other_way_round_nothing_is_told_of_it(change: str) -> None:
    """A rule that forbids a change in one direction lets it pass in the other, unless that is another change."""
    old, new, _, told = BREAKING[change]
    back = breaks(new, old)
    assert told not in back
    types = ("another type", "a type of items", "a type of other fields", "a place of a tuple")
    others = (
        "another constant",
        "another pattern",
        "a value beyond a limit",
        "a closed object has a new field",
    )
    if change not in (*types, *others):
        assert back == [], "this change breaks in one direction alone"


@pytest.mark.parametrize("change", HARMLESS)
def test_what_breaks_no_reader_passes(change: str) -> None:
    old, new = HARMLESS[change]
    assert breaks(old, new) == []


def test_each_change_is_a_line_of_its_own() -> None:
    old = of("a", "b", "c", a=TEXT, b=COLOUR, c=NUMBER)
    new = of("b", a=TEXT, b=WIDER)
    assert breaks(old, new) == [
        "a may be missing now (may-be-missing)",
        'b may be "green" now (new-value)',
        "c is gone (removed)",
    ]


def test_schemas_that_refer_to_themselves_in_different_steps_are_compared() -> None:
    once = {"$ref": "#/$defs/T", "$defs": {"T": of(n=NUMBER, t={"$ref": "#/$defs/T"})}}
    twice = {
        "$ref": "#/$defs/T",
        "$defs": {"T": of(n=NUMBER, t=of(n=TEXT, t={"$ref": "#/$defs/T"}))},
    }
    assert breaks(once, twice) == ["t.n may be string now, and was integer (other-type)"]


def test_a_reference_that_leads_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="leads nowhere in its schema"):
        breaks({"$ref": "#/$defs/A"}, {"type": "string"})


# --- whatever the schemas are: what is judged to break nobody breaks nobody ----------------------------------------

_WORDS = st.sampled_from(["", "a", "ab", "abc", "b"])
_NAMES = st.sampled_from(["a", "b", "c"])


def _limits(low: str, high: str) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({}, optional={low: st.integers(0, 2), high: st.integers(2, 4)})


def _texts() -> st.SearchStrategy[Schema]:
    more = st.fixed_dictionaries({}, optional={"pattern": st.sampled_from(["^a", "b$"])})
    return st.builds(
        lambda limits, other: {**TEXT, **limits, **other}, _limits("minLength", "maxLength"), more
    )


def _numbers() -> st.SearchStrategy[Schema]:
    kinds = st.sampled_from(["integer", "number"])
    limits = _limits("minimum", "maximum") | _limits("exclusiveMinimum", "exclusiveMaximum")
    return st.builds(lambda kind, limits: {"type": kind, **limits}, kinds, limits)


def _values() -> st.SearchStrategy[Schema]:
    value = _WORDS | st.integers(0, 3) | st.booleans() | st.none() | st.sampled_from([1.5, 2.0])
    return st.lists(value, min_size=1, max_size=3).map(lambda given: {"enum": given}) | st.builds(
        lambda given: {"const": given}, value
    )


def _objects(schemas: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    properties = st.dictionaries(_NAMES, schemas, max_size=3)
    rest = st.booleans() | schemas
    return st.builds(
        lambda properties, required, rest: {
            "type": "object", "properties": properties, "required": required, "additionalProperties": rest,
        },
        properties, st.lists(_NAMES, max_size=2, unique=True), rest,
    )  # fmt: skip


def _arrays(schemas: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    more = st.fixed_dictionaries(
        {}, optional={"items": schemas, "prefixItems": st.lists(schemas, min_size=1, max_size=2),
                      "uniqueItems": st.booleans()},
    )  # fmt: skip
    return st.builds(
        lambda limits, more: {"type": "array", **limits, **more}, _limits("minItems", "maxItems"), more
    )


SCHEMAS: st.SearchStrategy[Schema] = st.recursive(
    _texts() | _numbers() | _values() | st.just({}) | st.sampled_from([{"type": ["string", "null"]}, True]),
    lambda inner: (
        _objects(inner)
        | _arrays(inner)
        | st.lists(inner, min_size=1, max_size=2).map(lambda several: {"anyOf": several})
        | st.tuples(inner, inner).map(lambda both: {"allOf": [*both]})
    ),
    max_leaves=5,
)

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | _WORDS | st.integers(-1, 5) | st.sampled_from([0.5, 1.5, 2.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)


def documents(schema: Schema) -> st.SearchStrategy[Any]:
    """What fits a schema, mostly: a limit and all of ``allOf`` are left to whoever checks."""
    if schema is True or not schema:
        return DOCUMENTS if schema is not False else st.nothing()
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema.get("const")])
    several = schema.get("anyOf") or schema.get("allOf") or []
    if isinstance(schema.get("type"), list):
        several = [{**schema, "type": each} for each in schema["type"]]
    if several:
        return st.one_of(*map(documents, several))
    return _typed(schema)


def _typed(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.get("type") == "object":
        told = {name: documents(each) for name, each in schema.get("properties", {}).items()}
        rest = schema.get("additionalProperties", True)
        others = {name: documents(rest) for name in "abc" if name not in told and rest is not False}
        required = {
            name: each for name, each in (told | others).items() if name in schema.get("required", ())
        }
        return st.fixed_dictionaries(
            required, optional={name: each for name, each in (told | others).items() if name not in required}
        )
    if schema.get("type") == "array":
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        more = st.lists(documents(rest), max_size=2) if rest is not False else st.just([])
        return st.tuples(*map(documents, first)).flatmap(lambda begun: more.map(lambda end: [*begun, *end]))
    plain = {"string": _WORDS, "integer": st.integers(-1, 5), "null": st.none()}
    return plain.get(schema.get("type", ""), st.integers(-1, 5) | st.sampled_from([0.5, 1.5, 2.0]))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Schema, Schema]:
    """A schema, and what became of it in a few changes: seldom something else altogether."""
    old = draw(SCHEMAS)
    return old, draw(st.just(old) | SCHEMAS) if draw(st.booleans()) else _changed(draw, old)


def _changed(draw: st.DrawFn, schema: Schema) -> Schema:
    """One place of a schema is another."""
    if not isinstance(schema, dict) or draw(st.integers(0, 3)) == 0:
        return draw(SCHEMAS)
    name = draw(st.sampled_from(sorted(schema) or [""]))
    value = schema.get(name)
    if name == "properties" and value and draw(st.booleans()):
        each = draw(st.sampled_from(sorted(value)))
        changed: Schema = {**value, each: _changed(draw, value[each])}
    elif name in ("items", "additionalProperties") and isinstance(value, dict):
        changed = _changed(draw, value)
    elif name in ("anyOf", "allOf", "prefixItems") and isinstance(value, list):
        changed = [_changed(draw, value[0]), *value[1:]]
    elif isinstance(value, int) and not isinstance(value, bool):
        changed = value + draw(st.sampled_from([-1, 1]))
    else:
        return {other: kept for other, kept in schema.items() if other != name}
    return {**schema, name: changed}


@given(pair=pairs(), data=st.data())
def test_whatever_fits_a_schema_that_is_judged_harmless_fits_the_old_one(
    pair: tuple[Schema, Schema], data: st.DataObject
) -> None:
    old, new = pair
    assume(breaks(old, new) == [])
    for document in data.draw(st.lists(documents(new) | DOCUMENTS, min_size=15, max_size=25)):
        assert not valid(document, new) or valid(document, old), document
