"""The documents can be read: they have at most so many words, the first two doors the smaller part of them."""

import re
import subprocess
from pathlib import Path

from tests.support.paths import ROOT

ALL, FIRST_TWO_DOORS = 25_000, 16_500
"""Lines of code and what stands in tables count too; a table's bars do not: a word has a letter or a digit."""

_WORD = re.compile(r"\S*\w\S*")


def pages(*patterns: str) -> list[Path]:
    """Those in the repository; what a developer keeps beside them does not count."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in listed.splitlines() if name.endswith(".md")]


def counted(files: list[Path]) -> tuple[int, str]:
    """The words, and the longest pages, which are the first to be looked at."""
    sizes = {str(file.relative_to(ROOT)): len(_WORD.findall(file.read_text())) for file in files}
    longest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    return sum(sizes.values()), ", ".join(f"{name} {sizes[name]}" for name in longest)


def test_all_documents_together_are_short_enough_to_be_read() -> None:
    words, longest = counted(pages("docs"))
    assert words <= ALL, f"{words} words, {words - ALL} too many. The longest: {longest}"


def test_who_uses_or_runs_a_service_has_little_to_read() -> None:
    words, longest = counted(pages("README.md", "docs/use", "docs/operate"))
    assert words <= FIRST_TWO_DOORS, (
        f"{words} words, {words - FIRST_TWO_DOORS} too many. The longest: {longest}"
    )
