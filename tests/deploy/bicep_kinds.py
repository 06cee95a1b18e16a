"""Whether an expression of a Bicep file fits one of Azure's types: kind, values, properties, what must be there.

What an expression is at run time is known as far as its form tells: a literal, a parameter by its declaration, a
variable by its expression, an output by the module's, a few functions by what they return. The rest is passed.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tree_sitter import Node

from tests.deploy import bicep_syntax as syntax
from tests.deploy.bicep_syntax import Source, text
from tools.bicep_types import DATA, READ_ONLY, REQUIRED

_LITERALS = {"object": "object", "array": "array", "for_statement": "array", "string": "string", "number": "int",
             "boolean": "bool", "null": "null"}  # fmt: skip
_RETURNS = {"string": "string", "guid": "string", "uniqueString": "string", "toLower": "string", "toUpper": "string",
            "replace": "string", "format": "string", "subscriptionResourceId": "string", "resourceId": "string",
            "loadTextContent": "string", "empty": "bool", "contains": "bool", "length": "int", "int": "int",
            "range": "array", "concat": "array", "map": "array", "filter": "array"}  # fmt: skip
_COMPARED = {"==", "!=", "<", ">", "<=", ">=", "&&", "||"}


@dataclass(frozen=True)
class Types:
    """The types that the tests have, from tools/bicep_types.py."""

    resources: dict[str, Any]
    nodes: list[Any]

    @classmethod
    def load(cls, file: Path = DATA) -> "Types":
        data = json.loads(file.read_text())
        return cls(data["resources"], data["nodes"])

    def of(self, wanted: Any) -> dict[str, Any]:
        """A type, with what is written for it. A plain one has nothing but its kind."""
        if isinstance(wanted, int):
            found: dict[str, Any] = self.nodes[wanted]
            return found
        return {"plain": wanted}


def kind_of(wanted: dict[str, Any]) -> str:
    """One word for what a type asks for."""
    if "properties" in wanted:
        return "object"
    if "items" in wanted:
        return "array"
    if "values" in wanted:
        return "string" if wanted["values"] else "any"
    return str(wanted["plain"])


def declared_kind(node: Node | None) -> str:
    """The kind that a parameter or an output is declared to be; a type of the file's own can be any."""
    if node is None:
        return "any"
    if node.type == "nullable_type":
        return declared_kind(node.named_children[0])
    if node.type == "primitive_type":
        return text(node)
    return {"array_type": "array", "object": "object", "union_type": "string", "string": "string"}.get(
        node.type, "any"
    )


@dataclass(frozen=True)
class Expression:
    """An expression where it stands: the file whose names it reads, and what is known there.

    ``bound`` are the names of loops and lambdas around it, ``never`` the values that a condition around it rules out.
    """

    node: Node
    source: Source
    bound: frozenset[str] = field(default=frozenset())
    never: frozenset[tuple[str, str]] = field(default=frozenset())

    def at(self, node: Node, *binders: Node) -> "Expression":
        """Another expression at the same place, inside of these loops and lambdas."""
        return replace(self, node=node, bound=self.bound.union(*map(syntax.binds, binders)))

    def alternatives(self) -> Iterator["Expression"]:
        """What it can be: both sides of a condition, what a variable stands for."""
        node = self.node
        if node.type == "parenthesized_expression":
            yield from self.at(node.named_children[0]).alternatives()
        elif node.type == "ternary_expression":
            condition, yes, no = node.named_children
            ruled_out = re.fullmatch(r"(\w+) == '([^'$]*)'", text(condition))
            never = frozenset([(ruled_out[1], ruled_out[2])]) if ruled_out else frozenset()
            yield from self.at(yes).alternatives()
            yield from replace(self.at(no), never=self.never | never).alternatives()
        elif (variable := self.declaration("variable")) and variable.value is not None:
            yield from Expression(variable.value, self.source).alternatives()
        else:
            yield self

    def declaration(self, kind: str) -> syntax.Declaration | None:
        """What this expression names, when it is nothing but the name of such a thing."""
        if self.node.type != "identifier" or text(self.node) in self.bound:
            return None
        found = self.source.named(text(self.node))
        return found if found and found.kind == kind else None

    def texts(self) -> list[str]:
        """The texts that it can be, as far as they are known."""
        if parameter := self.declaration("parameter"):
            return [each for each in parameter.allowed() if (parameter.name, each) not in self.never]
        plain = self.node.type == "string" and not syntax.has_interpolation(self.node)
        return [text(self.node)] if plain else []

    def written(self) -> str:
        """Its first characters, as they stand in the file."""
        return (self.node.text or b"").decode()[:60]

    def kind(self) -> str:
        """One word, "any" where the form does not tell."""
        node, signs = self.node, {each.type for each in self.node.children}
        if parameter := self.declaration("parameter"):
            return declared_kind(parameter.type)
        if node.type == "call_expression":
            return _RETURNS.get(text(node.named_children[0]), "any")
        if node.type == "binary_expression" and signs & _COMPARED:
            return "bool"
        if node.type == "unary_expression":
            return "bool" if "!" in signs else "int"
        return self._member() if node.type == "member_expression" else _LITERALS.get(node.type, "any")

    def _member(self) -> str:
        whole = re.sub(r"[!?]", "", text(self.node)).split(".")
        declared = None if whole[0] in self.bound else self.source.named(whole[0])
        if declared and declared.kind == "module" and len(whole) == 3 and whole[1] == "outputs":
            file = self.source.path.parent / declared.reference
            output = Source.read(file).of("output").get(whole[2]) if file.exists() else None
            return declared_kind(output.type) if output else "any"
        if declared and declared.kind == "resource" and whole[1:] in (["id"], ["name"]):
            return "string"
        return "any"


@dataclass(frozen=True)
class Check:
    """Compares expressions with types."""

    types: Types

    def faults(self, wanted: Any, given: Expression, where: str) -> Iterator[str]:
        """What is wrong with the expression, each with the place in the resource."""
        type_ = self.types.of(wanted)
        needed = kind_of(type_)
        for each in given.alternatives():
            kind = each.kind()
            if "any" not in {kind, needed} and kind not in {needed, "null"}:
                yield f"{where}: {each.written()} is {kind}, and {needed} is wanted"
            elif needed == "object":
                yield from self._object(type_, each, where)
            elif needed == "array":
                yield from self._array(type_["items"], each, where)
            else:
                yield from self._plain(type_, each, where)

    def _plain(self, type_: dict[str, Any], given: Expression, where: str) -> Iterator[str]:
        for value in given.texts():
            if type_.get("values") and value not in type_["values"]:
                yield f"{where}: {value} is none of {', '.join(type_['values'])}"
            if not type_.get("minLength", 0) <= len(value) <= type_.get("maxLength", len(value)):
                yield f"{where}: the length of {value} is out of range"
            if "pattern" in type_ and not re.search(type_["pattern"], value):
                yield f"{where}: {value} does not match {type_['pattern']}"
        if given.node.type == "number":
            number = int(text(given.node))
            if not type_.get("minValue", number) <= number <= type_.get("maxValue", number):
                yield f"{where}: {number} is out of range"

    def _array(self, items: Any, given: Expression, where: str) -> Iterator[str]:
        node = given.node
        if node.type == "array":
            for number, each in enumerate(node.named_children):
                if each.type != "comment":
                    yield from self.faults(items, given.at(each), f"{where}[{number}]")
        elif node.type == "for_statement":
            yield from self.faults(items, given.at(syntax.unwrapped(node), node), f"{where}[]")
        elif node.type == "call_expression":
            called, arguments = node.named_children
            if text(called) == "concat":
                for each in arguments.named_children:
                    for inner in given.at(each).alternatives():
                        yield from self._array(items, inner, where)
            elif text(called) == "map" and arguments.named_children[1].type == "lambda_expression":
                lambda_ = arguments.named_children[1]
                yield from self.faults(items, given.at(lambda_.named_children[-1], lambda_), f"{where}[]")

    def _object(self, type_: dict[str, Any], given: Expression, where: str) -> Iterator[str]:
        if given.node.type != "object":
            return
        values = list(syntax.properties(given.node))
        allowed, missing = dict(type_["properties"]), []
        if "by" in type_:
            chosen = next((value for name, value in values if name == type_["by"]), None)
            if chosen is None:
                missing.append(type_["by"])
            elif chosen.type == "string" and not syntax.has_interpolation(chosen):
                if text(chosen) not in type_["each"]:
                    yield f"{where}.{type_['by']}: {text(chosen)} is none of {', '.join(type_['each'])}"
                allowed |= type_["each"].get(text(chosen), {})
            else:
                return  # which properties there are is decided at run time
        for name, value in values:
            if name in allowed:
                flags, wanted = allowed[name]
                if flags & READ_ONLY:
                    yield f"{where}.{name}: can only be read"
                else:
                    yield from self.faults(wanted, given.at(value), f"{where}.{name}")
            elif "others" in type_:
                yield from self.faults(type_["others"], given.at(value), f"{where}.{name or '*'}")
            else:
                near = [other for other in allowed if other.lower() == str(name).lower()]
                yield f"{where}: no property {name}" + (f" (it is {near[0]})" if near else "")
        there = {name for name, _ in values}
        missing += [name for name, (flags, _) in allowed.items() if flags & REQUIRED and name not in there]
        yield from (f"{where}: {name} is missing" for name in dict.fromkeys(missing))
