"""The documents can be read: all words of ``docs`` together stay below a bound."""

from tests.support.paths import ROOT

MOST_WORDS = 22_000
"""Whatever stands between blanks counts, so code, tables and their bars do too."""


def test_all_documents_together_are_short_enough_to_be_read() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    sizes = {str(page.relative_to(ROOT)): len(page.read_text().split()) for page in pages}
    words = sum(sizes.values())
    longest = ", ".join(f"{name} {sizes[name]}" for name in sorted(sizes, key=lambda name: -sizes[name])[:5])
    assert words <= MOST_WORDS, f"{words} words, {words - MOST_WORDS} too many. The longest: {longest}"
