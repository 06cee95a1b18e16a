"""A property is indexed as the service decides: of an included and an excluded path, the more precise path wins.

``/a/b/?`` is more precise than ``/a/*``, and ``/a/?`` than ``/a/*``. The document's ``id`` is indexed in any case.
https://learn.microsoft.com/azure/cosmos-db/index-policy#includeexclude-strategy
"""

import re
from collections.abc import Sequence

from cosmos_outbox.cosmos.upkeep.inspection import IndexingPolicy

_SEGMENT = re.compile(r'"[^"]*"|[^/]+')


def covers(policy: IndexingPolicy, path: str) -> bool:
    """Whether the scalar property at ``path``, such as ``/data/deleted``, is indexed."""
    return policy.enabled and _precision(policy.included, path) > _precision(policy.excluded, path)


def covers_everything(policy: IndexingPolicy) -> bool:
    """Whether properties that neither list names are indexed too."""
    return policy.enabled and "/*" in policy.included and "/*" not in policy.excluded


def _precision(paths: Sequence[str], path: str) -> int:
    """The precision of the most precise path that matches; -1 when no path matches."""
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
