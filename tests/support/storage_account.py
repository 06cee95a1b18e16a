"""A storage account in memory, in virtual time, under the real SDK: a test says what befalls a request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import aiohttp
from azure.storage.blob.aio import ContainerClient
from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.storagequeue.client import claim_container, queue_service
from cosmos_outbox.testing.simulation import sdk_clock
from cosmos_outbox.testing.simulation.befallen import EPOCH
from cosmos_outbox.testing.simulation.http import MemorySession, SentRequest, StoreResponse
from cosmos_outbox.testing.simulation.storage_account import HeldMessage, StorageAccount
from cosmos_outbox.testing.simulation.storage_queues import CONNECTION, PACKAGES
from cosmos_outbox.testing.simulation.storage_rest import failure, is_of_blobs, queue_of, serve
from tests.support.virtual_time import in_virtual_time

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport

T = TypeVar("T")

WAY_SECONDS = 0.01
"""How long a request is under way, and its answer."""


@dataclass(frozen=True)
class Asked:
    """A request that has left."""

    at: float
    method: str
    what: str
    """Of a queue ``messages``, ``message`` or ``properties``; or ``blob``."""
    name: str
    """Of the queue, or of the blob."""
    query: dict[str, str]


Befalls = Callable[[Asked], Awaitable[StoreResponse | None]]
"""What is answered in the place of the account; None: it answers."""


async def nothing(_: Asked) -> None:
    """Befalls a request."""


@dataclass
class Account:
    """With what it was asked."""

    there: StorageAccount = field(default_factory=StorageAccount)
    asked: list[Asked] = field(default_factory=list)
    befalls: Befalls = nothing
    slow: Callable[[Asked], float] = lambda _: 0.0
    """How many seconds longer an answer takes."""

    def http(self) -> "AsyncHttpTransport[Any, Any]":
        """What one client sends its requests with."""
        from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - slow to import

        session = cast(aiohttp.ClientSession, MemorySession(self._send))
        made: AsyncHttpTransport[Any, Any] = AioHttpTransport(
            session=session, session_owner=False, use_env_settings=False
        )
        return made

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[QueueServiceClient, ContainerClient]]:
        """Of its queues, and of its container of claims."""
        connection = Connection(connection_string=CONNECTION)
        async with (
            queue_service(connection, None, self.http) as queues,
            claim_container(connection, None, "event-claims", self.http) as claims,
        ):
            yield queues, claims

    def held(self, queue: str) -> list[HeldMessage]:
        """The messages of a queue, hidden ones too."""
        return self.there.queue(queue).messages

    def requests(self, method: str, what: str) -> list[Asked]:
        """Those of a kind."""
        return [each for each in self.asked if (each.method, each.what) == (method, what)]

    async def _send(self, request: SentRequest) -> StoreResponse:
        asked = _asked(request)
        self.asked.append(asked)
        await asyncio.sleep(WAY_SECONDS)
        answer = await self.befalls(asked)
        if answer is None:
            answer = self._answered(request, asked)
        await asyncio.sleep(WAY_SECONDS + self.slow(asked))
        return answer

    def _answered(self, request: SentRequest, asked: Asked) -> StoreResponse:
        if (
            asked.method == "GET"
            and asked.what == "messages"
            and not 1 <= int(asked.query["numofmessages"]) <= 32
        ):
            return failure(400, "OutOfRangeQueryParameterValue")  # as the service has it
        return serve(self.there, request, _now(), lambda at: EPOCH + timedelta(seconds=at), list)


def _asked(request: SentRequest) -> Asked:
    parts = request.path.strip("/").split("/")
    if is_of_blobs(request):
        what, name = "blob", "/".join(parts[1:])
    else:
        what = "properties" if "comp" in request.query else "message" if len(parts) > 2 else "messages"
        name = queue_of(request)
    return Asked(_now(), request.method, what, name, dict(request.query))


def _now() -> float:
    return asyncio.get_running_loop().time()


def with_account(story: Callable[[Account], Awaitable[T]]) -> T:
    """Tell a story of an account in virtual time."""
    sdk_clock.install(*PACKAGES)

    async def of_an_account() -> T:
        return await story(Account())

    return in_virtual_time(of_an_account())
