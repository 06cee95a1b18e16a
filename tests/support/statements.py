"""The statements of a module, and none of the expressions in them: to go through these takes most of the time."""

import ast
from collections.abc import Iterator

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(module: ast.Module) -> Iterator[ast.AST]:
    """All, wherever in the module they stand; and the handlers and cases that hold some."""
    left: list[ast.AST] = [*module.body]
    while left:
        node = left.pop()
        yield node
        for block in _BLOCKS:
            left.extend(getattr(node, block, ()))
