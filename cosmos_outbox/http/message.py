"""A request and an answer as this package knows them: whoever serves them translates, once, at its edge.

``cosmos_outbox.functions`` translates for Azure Functions, ``cosmos_outbox.http.asgi`` for every ASGI server.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace


class Headers(Mapping[str, str]):
    """Headers by their names, in any case of letters; of two with one name the later counts."""

    def __init__(self, *given: Mapping[str, str]) -> None:
        self._kept = {name.lower(): (name, value) for each in given for name, value in each.items()}

    def __getitem__(self, name: str) -> str:
        return self._kept[name.lower()][1]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._kept

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)


@dataclass(frozen=True)
class Request:
    """What a caller sends."""

    method: str
    url: str
    """As the caller wrote it, with its query."""
    headers: Mapping[str, str] = field(default_factory=Headers)
    route: Mapping[str, str] = field(default_factory=dict)
    """The parts of the path that stand for names, such as ``id``."""
    body: bytes = b""
    base: str = ""
    """What the path begins with before the part that the API serves, such as ``/api``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", Headers(self.headers))  # whatever it was, its names have no case


@dataclass(frozen=True)
class Answer:
    """What the caller gets."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=Headers)
    media_type: str = "text/plain"

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", Headers(self.headers))

    def with_headers(self, headers: Mapping[str, str]) -> "Answer":
        """The same answer with these headers; one that it has is replaced."""
        return replace(self, headers=Headers(self.headers, headers))

    @property
    def content_type(self) -> str:
        """The media type, with the encoding of a text."""
        return f"{self.media_type}; charset=utf-8" if self.media_type.startswith("text/") else self.media_type


Handler = Callable[[Request], Awaitable[Answer]]
"""Answers one kind of call."""

_base: ContextVar[str] = ContextVar("base_of_the_api", default="")


@contextmanager
def below(base: str) -> Iterator[None]:
    """What is answered meanwhile belongs to an API below this path, such as ``/api``."""
    before = _base.set(base)
    try:
        yield
    finally:
        _base.reset(before)


def base() -> str:
    """The path that the API of the running request is below."""
    return _base.get()


READING = ("GET", "HEAD")
"""Of a function that reads. The host does not see to HEAD (azure-functions-host issue 11625): the function answers both
alike, and the server leaves the body out."""
