"""A known path with a wrong method is 405, not 404; the methods of a path are read from what serves it.

The Functions host answers 404 for a known route with another method (azure-functions-host issues 9876 and 10098), and
a router in Python names the methods of one route where several have the path. So one call, the catch-all, takes what no
other call takes.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.problems import UNKNOWN_PATH
from cosmos_outbox.http.responses import problem

_PARAMETER = re.compile(r"\{[^{}*]+\}")


@dataclass(frozen=True)
class Path:
    """A path below the API's root, and the methods that it takes."""

    route: str
    """As it is declared, without a slash before it: ``orders/{id}``."""
    methods: Collection[str]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("([^/]+)".join(map(re.escape, _PARAMETER.split(self.route))))

    @property
    def shape(self) -> str:
        """The route without its names: two paths of one shape are one."""
        return _PARAMETER.sub("{}", self.route)

    def parts(self, path: str) -> Mapping[str, str] | None:
        """What stands in a path for the names in this one; None: it is another path."""
        found = self._pattern.fullmatch(path)
        names = [name[1:-1] for name in _PARAMETER.findall(self.route)]
        return None if found is None else dict(zip(names, found.groups(), strict=True))


def no_such_call(request: Request, path: str, known: Sequence[Path], hint: str) -> Answer:
    """405 when a known path takes other methods, otherwise 404 with a hint.

    Its kind is another one than of an aggregate that is not there: a subscriber that asks at a wrong address must not
    take the answer for a deletion (:mod:`cosmos_outbox.sources.http`).
    """
    taken = {method for each in known if each.parts(path) is not None for method in each.methods}
    # A request with a method that is taken is here because its path is not quite that path: it has a slash too many.
    if not taken or request.method in taken:
        return problem(404, UNKNOWN_PATH, f"There is nothing at this path: {hint}.")
    allowed = ", ".join(sorted(taken))
    detail = f"This path does not take {request.method}; it takes {allowed}."
    return problem(405, "Method not allowed", detail, headers={"Allow": allowed})
