"""Requests and responses, independent of any server; each server's edge translates to and from them.

``cosmos_outbox.functions`` translates for Azure Functions, ``cosmos_outbox.http.asgi`` for every ASGI server.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace

from cosmos_outbox.kernel.dataclass import dataclass


class Headers(Mapping[str, str]):
    """Headers by case-insensitive name; of two with the same name the later wins."""

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
    """A request as a caller sent it."""

    method: str
    url: str
    """The URL as the caller wrote it, with its query."""
    headers: Mapping[str, str] = field(default_factory=Headers)
    route: Mapping[str, str] = field(default_factory=dict)
    """The values of the route's parameters, such as ``id``."""
    body: bytes = b""
    base: str = ""
    """The path prefix below which the API is served, such as ``/api``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", Headers(self.headers))


@dataclass(frozen=True)
class Answer:
    """A response to a caller."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=Headers)
    media_type: str = "text/plain"

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", Headers(self.headers))

    def with_headers(self, headers: Mapping[str, str]) -> "Answer":
        """Returns a copy with these headers added or replaced."""
        return replace(self, headers=Headers(self.headers, headers))

    @property
    def content_type(self) -> str:
        """The media type, with the charset of a text."""
        return f"{self.media_type}; charset=utf-8" if self.media_type.startswith("text/") else self.media_type


Handler = Callable[[Request], Awaitable[Answer]]
"""Answers one kind of call."""

_base: ContextVar[str] = ContextVar("base_of_the_api", default="")


@contextmanager
def below(base: str) -> Iterator[None]:
    """Sets the API's base path, such as ``/api``, for responses made inside the block."""
    before = _base.set(base)
    try:
        yield
    finally:
        _base.reset(before)


def base() -> str:
    """Returns the base path of the API that serves the current request."""
    return _base.get()


READING = ("GET", "HEAD")
"""The methods of a function that reads. The host does not map HEAD to GET (azure-functions-host issue 11625): the
function answers both alike, and the server omits the body."""
