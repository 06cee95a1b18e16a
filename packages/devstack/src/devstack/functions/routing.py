"""A request finds the function that the real host would find, however surprising.

Routes are tried in the order of the functions' names and the first that matches wins, unlike in ASP.NET Core, whose
templates they are (https://github.com/Azure/azure-functions-host/issues/9876). Paths are read as its
``PathTokenizer`` and ``RoutePatternMatcher`` read them: one slash at the end means nothing, and an empty segment
fits no route, unless it is behind the beginning of a catch-all parameter.

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
        parts = template.removeprefix("/").removesuffix("/").split("/") if template.strip("/") else []
        if not all(parts):
            raise UnsupportedRoute(f'no slashes next to each other in "{template}": routes begin without one')
        segments = [_parse_segment(part, template) for part in parts]
        for earlier, later in pairwise(segments):
            if earlier.rest or (earlier.optional and not later.optional):
                raise UnsupportedRoute(
                    f'in "{template}", nothing may follow an optional or a catch-all parameter'
                )
        return cls(segments)

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters in ``path``, which :func:`resolved_path` gave; ``None`` when it does not fit."""
        parts = _tokens(path)
        parameters: dict[str, str] = {}
        for index, segment in enumerate(self.segments):
            if index >= len(parts):
                # What may be left out comes last.
                return parameters if segment.optional or segment.rest else None
            text = parts[index]
            if not text:
                return None
            if segment.rest:
                parameters[segment.name] = "/".join(parts[index:]) + ("/" if path.endswith("/") else "")
                return parameters
            if not segment.accepts(text):
                return None
            if segment.literal is None:
                parameters[segment.name] = text
        return parameters if len(parts) <= len(self.segments) else None


def _tokens(path: str) -> list[str]:
    parts = path.split("/")[1:]
    return parts[:-1] if path.endswith("/") else parts


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


def resolved_path(raw_path: str) -> str:
    """The path of a request as Kestrel hands it on: decoded once, and then without dot segments.

    An encoded slash stays encoded, so that it cannot be taken for a separator.
    """
    decoded = unquote(re.sub("%(2f)", r"%25\1", raw_path, flags=re.IGNORECASE))
    kept: list[str] = []
    segments = decoded.split("/")[1:]
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


class Router(Generic[T]):
    """Named routes with their methods; an empty set of methods means all of them."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, RouteTemplate, frozenset[str], T]] = []

    def add(self, name: str, template: RouteTemplate, methods: frozenset[str], target: T) -> None:
        # In upper case, as .NET's OrdinalIgnoreCase compares: an underscore comes after all letters.
        self._routes.append((name.upper(), template, methods, target))
        self._routes.sort(key=lambda route: route[0])

    def find(self, method: str, path: str) -> tuple[T, dict[str, str]] | None:
        """The first route, by name, that takes ``path``, which :func:`resolved_path` gave.

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
