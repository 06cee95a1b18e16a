"""A request finds the function that the real host would find, however surprising.

Routes are tried in the alphabetical order of the functions' names and the first that matches wins, unlike in
ASP.NET Core, whose templates they are (https://github.com/Azure/azure-functions-host/issues/9876).

Supported: literals, ``{name}``, ``{name?}``, ``{*rest}``, and the constraints in :data:`CONSTRAINTS`, without
regard to case. A template with anything else is refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

_GUID = re.compile(r"(?:[0-9a-f]{32}|\{?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}?)", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d+")
_PARAMETER = re.compile(
    r"\{(?P<rest>\*{1,2})?(?P<name>\w+)(?P<constraints>(?::[^{}:?]+)*)(?P<optional>\?)?\}"
)
_WITH_ARGUMENT = re.compile(r"(\w+)\((\d+)(?:,(\d+))?\)")

Check = Callable[[str], bool]


def _integer_within(bits: int) -> Check:
    limit = 2 ** (bits - 1)
    return lambda text: bool(_INTEGER.fullmatch(text)) and -limit <= int(text) < limit


CONSTRAINTS: Mapping[str, Check] = {
    "guid": lambda text: bool(_GUID.fullmatch(text)),
    "int": _integer_within(32),
    "long": _integer_within(64),
    "bool": lambda text: text.lower() in ("true", "false"),
    "alpha": lambda text: text.isascii() and (text.isalpha() or not text),
}
"""Constraints without an argument; ``minlength(n)``, ``maxlength(n)``, ``length(n)``, ``length(n,m)`` are
there too.
"""


class UnsupportedRoute(ValueError):
    """The template has something that this router does not know."""


@dataclass(frozen=True)
class _Segment:
    literal: str | None = None
    name: str = ""
    checks: Sequence[Check] = ()
    optional: bool = False
    rest: bool = False

    def accepts(self, text: str) -> bool:
        if self.literal is not None:
            return text.lower() == self.literal.lower()
        return all(check(text) for check in self.checks)


@dataclass(frozen=True)
class RouteTemplate:
    """A parsed template."""

    segments: Sequence[_Segment]

    @classmethod
    def parse(cls, template: str) -> "RouteTemplate":
        """Raises UnsupportedRoute."""
        parts = [part for part in template.strip("/").split("/") if part]
        segments = [_parse_segment(part, template) for part in parts]
        for earlier, later in pairwise(segments):
            if earlier.rest or (earlier.optional and not later.optional):
                raise UnsupportedRoute(
                    f'in "{template}", nothing may follow an optional or a catch-all parameter'
                )
        return cls(segments)

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters in ``path`` (still percent-encoded), or ``None``."""
        parts = path.strip("/").split("/") if path.strip("/") else []
        if any(not part for part in parts) and not any(segment.rest for segment in self.segments):
            return None
        parameters: dict[str, str] = {}
        for index, segment in enumerate(self.segments):
            if segment.rest:
                if index < len(parts):
                    parameters[segment.name] = "/".join(_decode(part) for part in parts[index:])
                return parameters
            if index >= len(parts):
                return parameters if segment.optional else None
            text = _decode(parts[index])
            if not segment.accepts(text):
                return None
            if segment.literal is None:
                parameters[segment.name] = text
        return parameters if len(parts) <= len(self.segments) else None


def _parse_segment(part: str, template: str) -> _Segment:
    if "{" not in part and "}" not in part:
        return _Segment(literal=part)
    match = _PARAMETER.fullmatch(part)
    if match is None:
        raise UnsupportedRoute(f'"{part}" in the route "{template}" is not supported')
    constraints = [each for each in match["constraints"].split(":") if each]
    return _Segment(
        name=match["name"],
        checks=[_constraint(each, template) for each in constraints],
        optional=bool(match["optional"]),
        rest=bool(match["rest"]),
    )


def _constraint(text: str, template: str) -> Check:
    if check := CONSTRAINTS.get(text.lower()):
        return check
    if match := _WITH_ARGUMENT.fullmatch(text):
        name, low, high = match[1].lower(), int(match[2]), int(match[3] or match[2])
        if name == "minlength" and match[3] is None:
            return lambda value: len(value) >= low
        if name == "maxlength" and match[3] is None:
            return lambda value: len(value) <= low
        if name == "length":
            return lambda value: low <= len(value) <= high
    raise UnsupportedRoute(f'the constraint "{text}" in the route "{template}" is not supported')


def _decode(part: str) -> str:
    # ASP.NET leaves an encoded slash as it is, so that it cannot be taken for a separator.
    return unquote(re.sub("%2f", "%252F", part, flags=re.IGNORECASE))


class Router(Generic[T]):
    """Named routes with their methods; an empty set of methods means all of them."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, RouteTemplate, frozenset[str], T]] = []

    def add(self, name: str, template: RouteTemplate, methods: frozenset[str], target: T) -> None:
        self._routes.append((name.lower(), template, methods, target))
        self._routes.sort(key=lambda route: route[0])

    def find(self, method: str, path: str) -> tuple[T, dict[str, str]] | None:
        """The first route, by name, that takes a percent-encoded path.

        A path that exists for other methods only is not found, as in the real host
        (https://github.com/Azure/azure-functions-host/issues/10098).
        """
        for _, template, methods, target in self._routes:
            if methods and method not in methods:
                continue
            parameters = template.match(path)
            if parameters is not None:
                return target, parameters
        return None
