"""The library's code, where it names a model's rules."""

import re
from functools import cache

from tests.support.paths import ROOT


@cache
def words_of(folder: str = ".") -> frozenset[str]:
    """Every word of the library's modules in the folder, of those below it too; with its hyphens."""
    texts = (path.read_text() for path in (ROOT / "cosmos_outbox" / folder).rglob("*.py"))
    return frozenset(word for text in texts for word in re.findall(r"\w+(?:-\w+)*", text))
