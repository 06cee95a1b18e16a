"""Every target of the documentation exists: a link, a heading, a file or folder in backticks."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

OURS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
"""Documents that name files from the top of the repository."""
ELSEWHERE = sorted(
    each for folder in ("packages", "examples") for each in (ROOT / folder).glob("*/README.md")
)
"""Documents that name files from their own folder."""
DECISIONS = sorted((ROOT / "docs" / "internals" / "decisions").glob("[0-9]*.md"))

_LINK = re.compile(r"\]\((?!\w+:)([^)\s]+)\)")
_NAMED = re.compile(
    r"`((?:\.devcontainer|application(?!/(?:json|merge|problem))|cosmos_changefeed|cosmos_outbox|deploy|docs|domain|examples|infra|packages|scripts|tests|tools)"
    r"/[\w./-]*)`"
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as the usual hosts make them."""
    headings = _HEADING.findall(_FENCE.sub("", document.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*OURS, *ELSEWHERE], ids=name)
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCE.sub("", document.read_text())):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("document", OURS, ids=name)
def test_every_file_that_is_named_is_there(document: Path) -> None:
    named = _NAMED.findall(_FENCE.sub("", document.read_text()))
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_tree_in_the_readme_names_what_is_there() -> None:
    [tree] = re.findall(
        r"^```\n(function_app\.py .*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert not [line.split()[0] for line in tree.splitlines() if not (ROOT / line.split()[0]).exists()]


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_a_decision_has_its_parts_and_is_in_the_index(page: Path) -> None:
    text = page.read_text()
    title = text.splitlines()[0].removeprefix("# ")
    assert re.search(r"^Date: \d{4}-\d{2}-\d{2}\. Status: \S", text, re.MULTILINE)
    for part in ("Chosen.", "Why", "Costs.", "Revisit when"):
        assert f"\n**{part}" in text
    index = (page.parent / "README.md").read_text()
    assert f". [{title}]({page.name})" in index
