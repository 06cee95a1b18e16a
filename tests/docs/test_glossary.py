"""The glossary has at most twelve words, and a page that uses one explains it or leads there."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
GLOSSARY = DOCS / "internals" / "glossary.md"
WORDS = re.findall(r"^- \*\*([\w ]+)\*\*", GLOSSARY.read_text(), re.MULTILINE)
STEMS = {"parked": "park(?:ed|s|ing)?", "set aside": "sets? aside", "heal": "heal(?:s|ed|ing)?"}
"""Of the words that change their form; others have an s at most."""
ORDINARY = {
    ("internals/reading-routes.md", "walk"),
    ("internals/torture.md", "heal"),
    ("use/getting-started.md", "block"),
    ("use/own-container.md", "block"),
}
"""Where a word is meant as everybody means it."""
PAGES = sorted(page for page in DOCS.rglob("*.md") if page != GLOSSARY)


def test_the_glossary_has_at_most_twelve_words() -> None:
    assert 0 < len(WORDS) <= 12


def unexplained(page: Path) -> list[str]:
    """The words whose first use stands in a paragraph before any link to them, and is not marked as explained there."""
    text = re.sub(r"^```.*?^```$|^#.*?$|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = []
    for word in WORDS:
        stem = STEMS.get(word, f"{word}s?")
        plain = re.sub(r"\]\([^)]*\)", "]", text)
        if not (first := re.search(rf"\b{stem}\b", plain)):
            continue
        until = plain.find("\n\n", first.end())
        before = len(re.findall(r"\]", plain[: until if until > 0 else None]))
        links = re.findall(r"\]\(([^)]*)\)", text)[:before]
        marked = re.search(rf"(?:\*|\[)[^*\]\n]*\b{stem}\b[^*\]\n]*(?:\*|\])", plain[: first.end() + 40])
        if not (marked or any("glossary.md" in link for link in links)):
            found.append(word)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_explains_a_word_or_leads_to_the_glossary(page: Path) -> None:
    name = str(page.relative_to(DOCS))
    assert [word for word in unexplained(page) if (name, word) not in ORDINARY] == []
