"""Every public name has an example on docs/use/face.md; its blocks run, in order, as they stand."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType
from typing import Any

import pytest

from outbox_simulation import plugin
from tests.support.paths import ROOT
from tests.unit.test_architecture import faces

PAGES = "face.md", "own-container.md"
"""The second is where the first leads to: its blocks run too, after all others."""
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "use" / page).read_text(), re.MULTILINE | re.DOTALL
    )
]


ELSEWHERE = {
    "cosmos_outbox.errors": ROOT / "docs" / "internals" / "errors.md",
    "cosmos_outbox.publisher": ROOT / "examples" / "journal" / "journal.py",
    "cosmos_outbox.store": ROOT / "examples" / "subscriber" / "sqlite_store.py",
}
"""What shows the names of a module in place of the page, which leads there."""


def compiled(block: str, number: int) -> CodeType:
    code: CodeType = compile(
        block, f"block {number} of {' and '.join(PAGES)}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    return code


@pytest.fixture
async def ran(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that a reader has after the last block; a simulation there has one seed."""
    monkeypatch.setattr(plugin, "options", replace(plugin.options, seeds=1))
    names: dict[str, Any] = {"__name__": "face"}
    for number, block in enumerate(BLOCKS, start=1):
        running = eval(compiled(block, number), names)
        if inspect.isawaitable(running):
            await running
    return names


def used(names: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """Each object that a block uses by its name, beyond its import: what holds it, and the name."""
    for block in BLOCKS:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield None, node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield names.get(node.value.id), node.attr


@pytest.mark.long  # tests/unit/test_face.py has the names
async def test_each_public_name_is_used_in_a_block_that_ran(ran: dict[str, Any]) -> None:
    shown = {name if home is None else (id(home), name) for home, name in used(ran)}
    missing = []
    for place in faces():
        face = importlib.import_module(place)
        elsewhere = re.findall(r"\w+", ELSEWHERE[place].read_text()) if place in ELSEWHERE else []
        for name in {*faces()[place]} - {*elsewhere}:
            by_itself = name in shown and ran.get(name) is getattr(face, name)
            if not by_itself and (id(face), name) not in shown:
                missing.append(f"{place}.{name}")
    assert not missing, "show what each is for on docs/use/face.md, in as few lines as will do"
