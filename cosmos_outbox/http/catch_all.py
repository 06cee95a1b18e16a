"""Answers requests that match no call: 405 for a known path with a wrong method, otherwise 404.

The Functions host answers 404 for a known route with another method (azure-functions-host issues 9876 and 10098), and
Python routers list the methods of only one of several routes with the same path. So a single catch-all call takes all
requests that no other call takes.
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
    """A path below the API's root, and the methods that it accepts."""

    route: str
    """The path as declared, without a leading slash: ``orders/{id}``."""
    methods: Collection[str]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("([^/]+)".join(map(re.escape, _PARAMETER.split(self.route))))

    @property
    def shape(self) -> str:
        """The route without its parameter names: paths of equal shape match the same requests."""
        return _PARAMETER.sub("{}", self.route)

    def parts(self, path: str) -> Mapping[str, str] | None:
        """Returns the values of the route's parameters in ``path``; None: the path does not match."""
        found = self._pattern.fullmatch(path)
        names = [name[1:-1] for name in _PARAMETER.findall(self.route)]
        return None if found is None else dict(zip(names, found.groups(), strict=True))


def no_such_call(request: Request, path: str, known: Sequence[Path], hint: str) -> Answer:
    """Returns 405 when a known path accepts other methods, otherwise 404 with a hint.

    This 404 has another problem type than that of a missing aggregate: a subscriber with a wrong source address must
    not take it for a deletion (:mod:`cosmos_outbox.sources.http`).
    """
    taken = {method for each in known if each.parts(path) is not None for method in each.methods}
    # A request with an accepted method gets here only if its path differs slightly, such as by a trailing slash.
    if not taken or request.method in taken:
        return problem(404, UNKNOWN_PATH, f"There is nothing at this path: {hint}.")
    allowed = ", ".join(sorted(taken))
    detail = f"This path does not take {request.method}; it takes {allowed}."
    return problem(405, "Method not allowed", detail, headers={"Allow": allowed})
