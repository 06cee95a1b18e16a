"""Whether an indexing policy covers a property, as the service decides it: the more precise path wins.

``/a/b/?`` is more precise than ``/a/*``, and ``/a/?`` than ``/a/*``. The document's ``id`` is indexed in any case.
https://learn.microsoft.com/azure/cosmos-db/index-policy#includeexclude-strategy
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SEGMENT = re.compile(r'"[^"]*"|[^/]+')


@dataclass(frozen=True)
class IndexingPolicy:
    """``enabled`` is false for the indexing mode "none"."""

    enabled: bool
    included: tuple[str, ...]
    excluded: tuple[str, ...]

    def covers(self, path: str) -> bool:
        """Whether the scalar property at ``path``, such as ``/data/deleted``, is indexed."""
        included, excluded = _precision(self.included, path), _precision(self.excluded, path)
        return self.enabled and included > excluded

    @property
    def covers_everything(self) -> bool:
        """Whether properties that nobody has named are indexed too."""
        return self.enabled and "/*" in self.included and "/*" not in self.excluded


def _precision(paths: Sequence[str], path: str) -> int:
    """Of the most precise of the paths that matches; -1 when none does."""
    target = _segments(path)
    return max((_match(_segments(candidate), target) for candidate in paths), default=-1)


def _match(candidate: list[str], target: list[str]) -> int:
    *named, last = candidate or ["*"]
    if last == "?" and named == target:
        return 2 * len(named) + 1
    if last == "*" and named == target[: len(named)]:
        return 2 * len(named)
    return -1


def _segments(path: str) -> list[str]:
    return [segment.strip('"') for segment in _SEGMENT.findall(path)]
