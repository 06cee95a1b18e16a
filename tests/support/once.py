"""HTTP for tests that must know what was sent: each request leaves this process at most once.

aiohttp by itself repeats GET, PUT, DELETE and other idempotent requests after a disconnect, even on a fresh connection,
so that the answer to the repetition looks like the answer to the request. Here each request has a connection of its
own, and a failure says whether the request may have been served.
"""

import asyncio
import http.client
import io
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode, urlsplit


class NotSent(Exception):
    """No connection could be made: the request was certainly not served."""


class NoAnswer(Exception):
    """The request may have been served: its answer did not come, or not whole."""


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


async def send(  # every part of a request, by its name
    method: str,
    url: str,
    *,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    parameters: Mapping[str, str] | None = None,
    within: float,
) -> Answer:
    """Send a request, its body as JSON, and wait for the answer. Raises NotSent, NoAnswer."""
    place = urlsplit(url)
    target = place.path + (f"?{urlencode(parameters)}" if parameters else "")
    request = _request(method, target, place.netloc, body, headers or {})
    sent = False
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            try:
                sent = True
                writer.write(request)
                received = await reader.read()
            finally:
                writer.transport.abort()
        return _answer(received, method)
    except (OSError, http.client.HTTPException) as error:
        failure = NoAnswer if sent else NotSent
        raise failure(f"{method} {url}: {type(error).__name__}") from error


def _request(method: str, target: str, host: str, body: Any, headers: Mapping[str, str]) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    own = {"Host": host, "Connection": "close", "Content-Length": str(len(content))}
    if body is not None:
        own["Content-Type"] = "application/json"
    lines = [
        f"{method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in (own | dict(headers)).items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


class _Received(io.BytesIO):
    """What http.client expects of a socket, when everything has arrived."""

    def makefile(self, *_: object) -> io.BytesIO:
        return self


def _answer(received: bytes, method: str) -> Answer:
    """Raises HTTPException, or ConnectionResetError for nothing at all, when it is not whole."""
    response = http.client.HTTPResponse(cast(socket.socket, _Received(received)), method=method)
    response.begin()
    return Answer(response.status, response.headers, response.read())
