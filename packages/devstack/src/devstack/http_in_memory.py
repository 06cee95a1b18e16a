"""HTTP in memory, as far as the SDKs and a webhook's sender use aiohttp: a session hands each request to a server."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from multidict import CIMultiDict


@dataclass(frozen=True)
class SentRequest:
    """A request as it leaves a client; ``by``: whose it is, where there are several clients."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    by: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    host: str = ""

    @property
    def goes_to(self) -> str:
        """Which items of the store it is about."""
        return f"{self.path} {self.headers.get('x-ms-documentdb-partitionkey', '')}"

    @property
    def kind(self) -> str:
        """In a word, for the trace of the store."""
        if "x-ms-cosmos-is-batch-request" in self.headers:
            return "batch"
        return "feed" if "A-IM" in self.headers else "request"


class _Content:
    """The body, as it is read piece by piece."""

    def __init__(self, body: bytes) -> None:
        self._left = BytesIO(body)

    async def read(self, most: int = -1) -> bytes:
        """The next piece."""
        return self._left.read(most)


@dataclass(frozen=True)
class StoreResponse:
    """An answer, as far as the SDKs read one of aiohttp's."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    reason: str = ""

    async def read(self) -> bytes:
        """The body."""
        return self.body

    @property
    def content(self) -> _Content:
        """The body from its beginning, each time it is asked for."""
        there: _Content = self.__dict__.setdefault("_content", _Content(self.body))
        return there

    def close(self) -> None:
        """Nothing is open."""


class MemorySession:
    """A session, as far as the SDKs use one of aiohttp's."""

    auto_decompress = False

    def __init__(
        self, send: Callable[[SentRequest], Awaitable[StoreResponse]], by: Callable[[], str] = str
    ) -> None:
        """``send`` raises what aiohttp raises; ``by``: whose a request is that is made now."""
        self._send = send
        self._by = by

    async def __aenter__(self) -> Self:
        return self

    async def close(self) -> None:
        """Nothing is open."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: Any, **_options: Any
    ) -> StoreResponse:
        """Raises what aiohttp raises."""
        body = data.encode() if isinstance(data, str) else data.read() if hasattr(data, "read") else data
        parts = urlsplit(str(url))
        query = dict(parse_qsl(parts.query, keep_blank_values=True)) if parts.query else {}
        return await self._send(
            SentRequest(
                method,
                parts.path,
                CIMultiDict(headers),
                bytes(body or b""),
                self._by(),
                query,
                parts.netloc,
            )
        )

    @asynccontextmanager
    async def post(
        self, url: str, *, data: Any, headers: Mapping[str, str], **options: Any
    ) -> AsyncIterator[StoreResponse]:
        """The same, as the webhook's publisher asks."""
        yield await self.request("POST", url, headers=headers, data=data, **options)
