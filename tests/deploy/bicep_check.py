"""Compares each resource in the Bicep files with Azure's published types, as far as literals and variables show.

Names, functions, modules and expressions are the compiler's, which runs in CI.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

from tools.bicep_types import DATA, READ_ONLY, REQUIRED

_PARSER = Parser(Language(tree_sitter_bicep.language()))
_LITERALS = {"object": "object", "array": "array", "for_statement": "array", "string": "string", "number": "int",
             "boolean": "bool"}  # fmt: skip
_OF_THE_LANGUAGE = {"parent", "scope", "dependsOn"}
_BY_THE_NAME = {"type", "apiVersion"}


def faults(folder: Path) -> list[str]:
    """What is wrong in the Bicep files of a folder: a line for each fault, with its file."""
    return [fault for path in sorted(folder.rglob("*.bicep")) for fault in _of(path)]


def _of(path: Path) -> Iterator[str]:
    root = _PARSER.parse(path.read_bytes()).root_node
    if root.has_error:
        yield f"{path.name}: is no Bicep"
        return
    data = json.loads(DATA.read_text())
    variables = {
        _text(each.named_children[0]): each.named_children[-1]
        for each in root.named_children
        if each.type == "variable_declaration"
    }
    for each in root.named_children:
        if each.type != "resource_declaration" or any(child.type == "existing" for child in each.children):
            continue
        name, kind, *_, body = each.named_children
        while body.type in {"if_statement", "for_statement"}:
            body = body.named_children[-1]
        if _text(kind) in data["resources"]:
            check = _Check(data["nodes"], variables)
            found = check.faults(data["resources"][_text(kind)], body, _text(name))
            yield from (f"{path.name}: {fault}" for fault in found)
        else:
            yield f"{path.name}: {_text(kind)} is not in {DATA.name}: run tools.bicep_types"


def _text(node: Node) -> str:
    return (node.text or b"").decode().strip("'")


def _is_plain(node: Node) -> bool:
    return not any(each.type == "interpolation" for each in node.named_children)


@dataclass(frozen=True)
class _Check:
    nodes: list[dict[str, Any]]
    variables: Mapping[str, Node]

    def faults(self, wanted: Any, given: Node, where: str) -> Iterator[str]:
        """What is wrong with an expression, each with the place in the resource."""
        type_ = self.nodes[wanted] if isinstance(wanted, int) else {"plain": wanted}
        for each in self._alternatives(given):
            kind, needed = _LITERALS.get(each.type), _kind(type_)
            if kind is None or needed == "any":
                continue
            if kind != needed:
                yield f"{where}: {_text(each)} is {kind}, and {needed} is wanted"
            elif kind == "object":
                yield from self._object(type_, each, where)
            elif each.type == "array":
                for item in each.named_children:
                    yield from self.faults(type_["items"], item, f"{where}[]")
            elif each.type == "for_statement":
                yield from self.faults(type_["items"], each.named_children[-1], f"{where}[]")
            elif _is_plain(each):
                yield from _value(type_, _text(each), where, number=kind == "int")

    def _alternatives(self, node: Node) -> Iterator[Node]:
        """Both sides of a condition, and what a variable stands for."""
        if node.type in {"parenthesized_expression", "if_statement"}:
            yield from self._alternatives(node.named_children[-1])
        elif node.type == "ternary_expression":
            for each in node.named_children[1:]:
                yield from self._alternatives(each)
        elif node.type == "identifier" and _text(node) in self.variables:
            yield from self._alternatives(self.variables[_text(node)])
        else:
            yield node

    def _object(self, type_: dict[str, Any], given: Node, where: str) -> Iterator[str]:
        values = {
            _text(each.named_children[0]): each.named_children[-1]
            for each in given.named_children
            if each.type == "object_property" and _is_plain(each.named_children[0])
        }
        allowed = dict(type_["properties"])
        if "by" in type_:
            chosen = values.get(type_["by"])
            if chosen is None or chosen.type != "string" or not _is_plain(chosen):
                return  # which properties there are is decided at run time
            allowed |= type_["each"].get(_text(chosen), {})
        top = "." not in where
        for name, value in values.items():
            if name in allowed and allowed[name][0] & READ_ONLY:
                yield f"{where}.{name}: can only be read"
            elif name in allowed or "others" in type_:
                inner = allowed[name][1] if name in allowed else type_["others"]
                yield from self.faults(inner, value, f"{where}.{name}")
            elif not (top and name in _OF_THE_LANGUAGE):
                yield f"{where}: no property {name}"
        given_by_name = _BY_THE_NAME if top else set()
        for name in allowed.keys() - values.keys() - given_by_name:
            if allowed[name][0] & REQUIRED:
                yield f"{where}: {name} is missing"


def _kind(type_: dict[str, Any]) -> str:
    if "properties" in type_:
        return "object"
    if "items" in type_:
        return "array"
    return ("string" if type_["values"] else "any") if "values" in type_ else str(type_["plain"])


def _value(type_: dict[str, Any], text: str, where: str, *, number: bool) -> Iterator[str]:
    size = int(text) if number else len(text)
    least, most = ("minValue", "maxValue") if number else ("minLength", "maxLength")
    if type_.get("values") and text not in type_["values"]:
        yield f"{where}: {text} is none of {', '.join(type_['values'])}"
    if not type_.get(least, size) <= size <= type_.get(most, size):
        yield f"{where}: {text} is out of range"
    if "pattern" in type_ and not re.search(type_["pattern"], text):
        yield f"{where}: {text} does not match {type_['pattern']}"
