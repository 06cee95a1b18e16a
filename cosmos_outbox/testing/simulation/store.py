"""Cosmos DB in memory under the real SDK: only aiohttp's session is another one, so all above it is what is deployed.

A request travels, is carried out, and its answer travels back. What may befall it is drawn for each: it cannot leave, it
is lost on its way there or back, it is slow, it is throttled or refused, replicas lag. What has left is carried out even
if whoever sent it is dead by then.
"""

import asyncio
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict

from cosmos_outbox.testing.simulation.instance import name_of_current
from cosmos_outbox.testing.simulation.loop import Loop
from cosmos_outbox.testing.simulation.trace import RunTrace

try:
    from devstack.cosmos.in_memory import CosmosInMemory, Fault
except ModuleNotFoundError as error:
    raise ImportError("the simulation needs devstack: pip install 'cosmos-outbox[testing]'") from error

_SILENCE_SECONDS = 65.0
"""After so long without an answer the SDK's transport gives up reading."""

_QUICKEST, _SLOWEST = 0.001, 0.015
"""Of a way to the store or back, where nothing befalls it."""


@dataclass(frozen=True)
class StoreFaults:
    """How often each befalls a request: a share of all, from 0 to 1."""

    no_connection: float = 0.0
    lost_before: float = 0.0
    """The connection ends, and nothing was done."""
    lost_after: float = 0.0
    """The connection ends, and all was done."""
    silent: float = 0.0
    """No answer comes, and the connection stays; all was done."""
    throttled: float = 0.0
    unavailable: float = 0.0
    timed_out: float = 0.0
    """408; done or not."""
    retry_with: float = 0.0
    """449."""
    write_forbidden: float = 0.0
    """403.3: the region takes no writes."""
    behind: float = 0.0
    """404/1002."""
    slow: float = 0.0
    longest_seconds: float = 6.0
    """Of a slow way there or back."""
    lag: float = 0.0
    """Of reads: the replicas are behind."""
    lag_seconds: float = 5.0

    def kinds(self) -> list[tuple[str, float]]:
        """What can happen instead of an answer, with its share; names are those of the fields."""
        shares = {field.name: float(getattr(self, field.name)) for field in fields(self)}
        return [(name, share) for name, share in shares.items() if share and name in _INSTEAD]


CALM = StoreFaults()

_SERVED = {
    "throttled": Fault(kind="throttle", retry_after_ms=300),
    "unavailable": Fault(kind="unavailable"),
    "retry_with": Fault(kind="retry-with"),
    "write_forbidden": Fault(kind="write-forbidden"),
    "behind": Fault(kind="session-not-available"),
}
_INSTEAD = {*_SERVED, "no_connection", "lost_before", "lost_after", "silent", "timed_out"}


class SimulatedStore:
    """One account of Cosmos DB, and the network before it."""

    def __init__(
        self,
        loop: Loop,
        account: CosmosInMemory,
        *,
        chance: random.Random,
        trace: RunTrace,
        faults: StoreFaults = CALM,
    ) -> None:
        self.loop = loop
        self.account = account
        self.requests = 0
        self._chance = chance
        self._trace = trace
        self._faults = faults
        self._kinds = faults.kinds()
        self._away_until = 0.0

    @property
    def faults(self) -> StoreFaults:
        """What befalls requests from now on."""
        return self._faults

    @faults.setter
    def faults(self, faults: StoreFaults) -> None:
        self._faults, self._kinds = faults, faults.kinds()

    def session(self) -> aiohttp.ClientSession:
        """What one process sends its requests with."""
        return cast(aiohttp.ClientSession, StoreSession(self))

    def go_away(self, seconds: float) -> None:
        """Nobody can connect for so long."""
        self._away_until = max(self._away_until, self.loop.time() + seconds)
        self._trace.note("store away", detail=f"for {seconds:.1f} s")

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> "asyncio.Future[Any]":
        """The answer, when it comes."""
        loop, chance = self.loop, self._chance
        answer: asyncio.Future[Any] = loop.create_future()
        who, fate = name_of_current(), self._fate()
        there, back = self._way(), self._way()
        if fate == "no_connection":
            self._later(there, _fail, answer, _no_connection())
            return answer
        if fate == "lost_before":
            self._trace.note("lost", _short(path), f"{method} before it arrived")
            self._later(there, _fail, answer, aiohttp.ServerDisconnectedError())
            return answer
        done = fate != "timed_out" or chance.random() < 0.5

        def arrive() -> None:
            response = self._serve(who, method, path, headers, body, fate) if done else _TIMED_OUT
            if fate in ("lost_after", "silent"):
                wait = back if fate == "lost_after" else _SILENCE_SECONDS
                error = aiohttp.ServerDisconnectedError() if fate == "lost_after" else aiohttp.SocketTimeoutError()
                self._later(wait, _fail, answer, error)
            else:
                self._later(back, _set, answer, _TIMED_OUT if fate == "timed_out" else response)

        self._later(there, arrive)
        return answer

    def _serve(
        self, who: str, method: str, path: str, headers: Mapping[str, str], body: bytes, fate: str | None
    ) -> "StoreResponse":
        account, faults = self.account, self._faults
        self.requests += 1
        account.faults.clear()
        if fate in _SERVED:
            account.faults.add(_SERVED[fate])
        lags = faults.lag and self._chance.random() < faults.lag
        if lags:
            seconds = self._chance.uniform(0.0, faults.lag_seconds)
            account.faults.add(Fault(kind="lag", seconds=seconds))
        answer, sent = account.serve(method, path, headers, body)
        text = (answer.body or "").encode()
        told = f"{method} {answer.status} {len(text)} {zlib.crc32(text):08x}"
        what = "batch" if "x-ms-cosmos-is-batch-request" in headers else "feed" if "A-IM" in headers else "request"
        self._trace.note(what, _short(path), f"{told} {fate or ''}{' lag' if lags else ''}".rstrip(), instance=who)
        return StoreResponse(answer.status, CIMultiDict(sent), text)

    def _fate(self) -> str | None:
        if self.loop.time() < self._away_until:
            return "no_connection"
        drawn = self._chance.random() if self._kinds else 1.0
        for name, share in self._kinds:
            drawn -= share
            if drawn < 0:
                return name
        return None

    def _way(self) -> float:
        chance = self._chance
        if self._faults.slow and chance.random() < self._faults.slow:
            return chance.uniform(0.0, self._faults.longest_seconds)
        return chance.uniform(_QUICKEST, _SLOWEST)

    def _later(self, seconds: float, call: Any, *arguments: Any) -> None:
        self.loop.call_later(seconds, call, *arguments, context=self.loop.outside())


@dataclass(frozen=True)
class StoreResponse:
    """As far as the SDK's transport reads one of aiohttp's."""

    status: int
    headers: CIMultiDict[str]
    body: bytes
    reason: str = ""

    async def read(self) -> bytes:
        """The body."""
        return self.body

    def close(self) -> None:
        """Nothing is open."""


_TIMED_OUT = StoreResponse(408, CIMultiDict({"Content-Type": "application/json"}), b'{"code":"RequestTimeout"}')


class StoreSession:
    """As far as the SDK's transport uses one of aiohttp's."""

    auto_decompress = False

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def close(self) -> None:
        """Nothing is open."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: Any, **_options: Any
    ) -> StoreResponse:
        """Raises what aiohttp raises."""
        body = data.encode() if isinstance(data, str) else bytes(data or b"")
        response: StoreResponse = await self._store.send(method, urlsplit(url).path, CIMultiDict(headers), body)
        return response


def _set(answer: "asyncio.Future[Any]", response: StoreResponse) -> None:
    if not answer.done():
        answer.set_result(response)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _no_connection() -> aiohttp.ClientConnectorError:
    key = ConnectionKey("cosmos.invalid", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
    return aiohttp.ClientConnectorError(key, OSError(111, "Connection refused"))


def _short(path: str) -> str:
    """Without the names of the account's parts that are always the same."""
    return path.partition("/colls/")[2] or path
