"""A receiver of webhooks on loopback: it answers as the test asks, in good and in bad HTTP, and keeps what it got."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from cosmos_outbox.settings.transports import Webhook

SECRET = "whsec_" + base64.b64encode(b"a secret of a test, 32 bytes lon").decode()
OTHER_SECRET = "whsec_" + base64.b64encode(os.urandom(32)).decode()


@dataclass(frozen=True)
class Got:
    """One request, as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Answer = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


def says(status: int, *headers: str, body: bytes = b"") -> Answer:
    """A whole answer."""

    async def answer(_: Got, writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return answer


OK = says(204)


@dataclass
class Receiver:
    """What it got, and what it says to each; ``answer`` may be changed at any time."""

    answer: Callable[[Got], Answer] = lambda _: OK
    got: list[Got] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    connections: int = 0
    url: str = ""

    def ids(self) -> list[str]:
        return [each.id for each in self.got]

    def target(self, **changes: object) -> Webhook:
        target = Webhook(self.url, [SECRET], request_seconds=2)
        return replace(target, **changes)  # type: ignore[arg-type]  # by the names of the fields

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (got := await self._read(reader)) is not None:
                self.got.append(got)
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                try:
                    await self.answer(got)(got, writer)
                finally:
                    self.under_way -= 1
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> Got | None:
        line = (await reader.readline()).decode().strip()
        if not line:
            return None
        headers: dict[str, str] = {}
        while header := (await reader.readline()).decode("latin-1").strip():  # as most servers do
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        return Got(line, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@asynccontextmanager
async def receiving(answer: Callable[[Got], Answer] = lambda _: OK, port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver on loopback; ``port`` 0: at a free one."""
    receiver, serving = Receiver(answer), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await receiver.serve(reader, writer)
        except asyncio.CancelledError:
            return
        finally:
            serving.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/events"
    try:
        yield receiver
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()
