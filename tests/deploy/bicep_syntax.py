"""A Bicep file, read by its grammar (tree-sitter-bicep): what it declares, and the expressions in it.

No expression is evaluated. A name in an expression is found with the names that loops and lambdas around it bind.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_bicep.language()))
_KINDS = {
    f"{kind}_declaration": kind for kind in ("parameter", "variable", "resource", "module", "output", "type")
}


class Unreadable(ValueError):
    """The text is no Bicep."""


@dataclass(frozen=True)
class Declaration:
    """A parameter, variable, resource, module or output."""

    kind: str
    name: str
    node: Node
    decorators: tuple[Node, ...]

    @property
    def type(self) -> Node | None:
        """What a parameter or an output is declared to be."""
        found = [each for each in self.node.named_children if each.type == "type"]
        return found[0].named_children[0] if found else None

    @property
    def reference(self) -> str:
        """What a resource or a module names: a type with its version, or a file."""
        return text(self.node.named_children[1])

    @property
    def value(self) -> Node | None:
        """The expression after the equals sign."""
        rest = [each for each in self.node.named_children[1:] if each.type not in {"type", "comment"}]
        if self.kind in {"resource", "module"}:
            rest = rest[1:]
        return rest[0] if rest else None

    @property
    def body(self) -> Node:
        """The object of a resource or module, which may stand in a condition and in a loop."""
        assert self.value is not None, f"{self.name} has no body"
        return unwrapped(self.value)

    @property
    def existing(self) -> bool:
        return any(each.type == "existing" for each in self.node.children)

    @property
    def optional(self) -> bool:
        """Whether a module may leave this parameter out."""
        return self.value is not None or (self.type is not None and self.type.type == "nullable_type")

    def allowed(self) -> list[str]:
        """The texts that a parameter may be; none: any."""
        for decorator in self.decorators:
            if text(decorator).startswith("@allowed("):
                return [text(each) for each in descendants(decorator) if each.type == "string_content"]
        return []


@cache
def _tree(name: str, code: str) -> Node:
    """Parsed once: a test that plants a fault in one file reads all others as they are."""
    root = _PARSER.parse(code.encode()).root_node
    for each in descendants(root):
        if each.is_error or each.is_missing:
            raise Unreadable(
                f"{name}: line {each.start_point.row + 1}: this is no Bicep: {text(each)[:40]!r}"
            )
    return root


@dataclass(frozen=True)
class Source:
    """One file."""

    path: Path
    code: str

    @classmethod
    def read(cls, path: Path) -> "Source":
        return cls(path.resolve(), path.read_text())

    @cached_property
    def root(self) -> Node:
        """The tree. Raises Unreadable."""
        return _tree(self.path.name, self.code)

    @cached_property
    def declarations(self) -> list[Declaration]:
        found: list[Declaration] = []
        decorators: list[Node] = []
        for each in self.root.named_children:
            if each.type == "decorators":
                decorators = each.named_children
            elif each.type in _KINDS:
                name = each.named_children[0]
                found.append(Declaration(_KINDS[each.type], text(name), each, tuple(decorators)))
                decorators = []
        return found

    def of(self, kind: str) -> dict[str, Declaration]:
        """What is declared as this kind."""
        return {each.name: each for each in self.declarations if each.kind == kind}

    def named(self, name: str) -> Declaration | None:
        """What a name in an expression stands for. An output cannot be named."""
        found = [each for each in self.declarations if each.name == name and each.kind != "output"]
        return found[0] if found else None


def text(node: Node) -> str:
    """What stands in the file; of a string without interpolation, its content."""
    if node.type == "string" and not has_interpolation(node):
        return "".join(text(each) for each in node.named_children)
    return (node.text or b"").decode()


def has_interpolation(node: Node) -> bool:
    return any(each.type == "interpolation" for each in node.named_children)


def descendants(node: Node) -> Iterator[Node]:
    """The node, and all in it."""
    yield node
    for each in node.children:
        yield from descendants(each)


def unwrapped(node: Node) -> Node:
    """What a condition or a loop is about, and an expression without its parentheses."""
    while node.type in {"if_statement", "for_statement", "parenthesized_expression"}:
        node = node.named_children[-1]
    return node


def loops(node: Node) -> list[Node]:
    """The loops between an expression and what it is about."""
    found = []
    while node.type in {"if_statement", "for_statement"}:
        found += [node] if node.type == "for_statement" else []
        node = node.named_children[-1]
    return found


def properties(node: Node) -> Iterator[tuple[str | None, Node]]:
    """The names and values of an object; a name that is computed is None."""
    for each in node.named_children:
        if each.type == "object_property" and len(each.named_children) > 1:
            name, value = each.named_children[0], each.named_children[-1]
            yield (None if has_interpolation(name) else text(name)), value


def names(node: Node, bound: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names that an expression reads and that nothing in it binds; a function's name is not one of them."""
    if node.type == "identifier":
        if text(node) not in bound:
            yield text(node)
        return
    children = node.named_children
    if node.type == "object_property" and len(children) > 1 and not has_interpolation(children[0]):
        children = children[1:]  # a plain key is no name
    elif node.type == "call_expression":
        children = children[1:]
    elif node.type in {"for_statement", "lambda_expression"}:
        children, bound = children[1:], bound | binds(node)
    for each in children:
        yield from names(each, bound)


def binds(node: Node) -> frozenset[str]:
    """The names that a loop or a lambda binds."""
    binders = {"identifier", "loop_variable", "loop_enumerator"}
    return frozenset(text(each) for each in descendants(node.named_children[0]) if each.type in binders)


def functions(node: Node) -> Iterator[str]:
    """The functions that an expression calls."""
    for each in descendants(node):
        if each.type == "call_expression":
            called = each.named_children[0]
            if called.type == "identifier":
                yield text(called)
