"""Requests as a client writes them, header by header: what the SDK would never send, and what it hides."""

import base64
import hashlib
import hmac
import io
import json
import uuid
from collections.abc import AsyncIterable
from dataclasses import dataclass
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="


def authorization(method: str, kind: str, link: str, date: str, key: str = KEY) -> str:
    """As https://learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources describes it."""
    text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    return quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Any
    body: Any

    @property
    def sub_status(self) -> str | None:
        value: str | None = self.headers.get("x-ms-substatus")
        return value


class Raw:
    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._session = aiohttp.ClientSession()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str] | None = None,
        body: Any = None,
        data: bytes | None = None,
    ) -> Reply:
        """A signed request; a header given here replaces the one that would be sent."""
        parts = [part for part in path.split("/") if part]
        is_feed = len(parts) % 2 == 1
        kind = parts[-1] if is_feed else parts[-2] if parts else ""
        link = "/".join(parts[:-1] if is_feed else parts)
        date = formatdate(usegmt=True)
        signed = {
            "x-ms-date": date,
            "x-ms-version": "2020-07-15",
            "authorization": authorization(method, kind, link, date),
            "x-ms-activity-id": str(uuid.uuid4()),
        }
        payload = data if body is None else json.dumps(body).encode()
        async with self._session.request(
            method,
            self._address + path,
            headers={**signed, **(headers or {})},
            data=payload and io.BytesIO(payload),
        ) as response:
            content = await response.read()
            return Reply(response.status, response.headers, json.loads(content) if content else None)

    async def administer(self, method: str, path: str, body: Any = None) -> Reply:
        """A call under ``/_devstack/``, which is not signed."""
        async with self._session.request(method, f"{self._address}/_devstack/{path}", json=body) as response:
            return Reply(response.status, response.headers, await response.json())


async def all_of(results: AsyncIterable[Any]) -> list[Any]:
    """Every result of a query or a feed, whatever its type: the SDK's types know only objects."""
    return [result async for result in results]


def items_path(container: Any) -> str:
    """The path of a container's items."""
    return f"/{container.container_link}/docs"
