"""Cosmos DB in memory under the real SDK, with only aiohttp's session replaced: all code above it is deployed code.

A request travels, is carried out, and its answer travels back. The faults of each are drawn: it cannot leave,
it is lost on its way there or back, it is slow, it is throttled or refused, replicas lag. A sent request is carried out
even if its sender is dead by then.
"""

import asyncio
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

import aiohttp
from multidict import CIMultiDict

from devstack.cosmos.in_memory import CosmosInMemory, Fault
from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine.http import answer as set_answer
from outbox_simulation.engine.http import fail, no_connection, session
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.trace import RunTrace

_SILENCE_SECONDS = 65.0
"""The time without an answer after which the SDK's transport stops reading."""

_DONE_ALL_THE_SAME = 0.5
"""The share of requests answered with 408 that were carried out."""

_NEAR_SECONDS = 5.0
"""The time for which a request is near another one with the same target."""

_RESTS_SECONDS = 10.0
"""The pause afterwards without faults: if each fault brought the next, nothing would ever get through."""

_MOST = 0.6
"""The share of near requests with a fault: some have to get through."""

# of items: the SDK's background reads of the account log errors that nobody retrieves
_SPELLS = {"throttled", "unavailable", "retry_with", "behind"}
_LASTS, _LONGEST_SPELL_SECONDS = 0.3, 8.0
"""The share of these that last longer than the SDK retries, and their longest time."""

_QUICKEST, _SLOWEST = 0.001, 0.015
"""The quickest and slowest way to the store or back, without faults."""


@dataclass(frozen=True)
class StoreFaults:
    """The share of requests with each fault, from 0 to 1."""

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
    """Answered with 408; done or not."""
    retry_with: float = 0.0
    """Answered with 449."""
    write_forbidden: float = 0.0
    """Answered with 403.3: the region takes no writes."""
    behind: float = 0.0
    """Answered with 404/1002."""
    slow: float = 0.0
    longest_seconds: float = 6.0
    """The longest time of a slow way there or back."""
    lag: float = 0.0
    """The share of reads from replicas that lag."""
    lag_seconds: float = 5.0

    near: float = 1.0
    """The factor of these shares for a request whose target had a fault a moment ago."""

    def kinds(self) -> list[tuple[str, float]]:
        """Returns the faults that replace an answer, each with its share; names are those of the fields."""
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


Saw = Callable[[float, SentRequest, StoreResponse], None]
"""Receives each request that was carried out, and when."""


class Meets(Protocol):
    """Returns the faults of requests by their targets; see :mod:`outbox_simulation.engine.correlated_faults`."""

    def fault_of(self, request: SentRequest, who: str) -> str | None:
        """Returns the fault of this request, sent now by this process."""

    def lag_seconds(self, request: SentRequest) -> float | None:
        """Returns the lag of the replicas that answer it."""


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
        self.saw: list[Saw] = []
        self.meets: Meets | None = None
        self._chance = chance
        self._trace = trace
        self._faults = faults
        self._kinds = faults.kinds()
        self._away_until = 0.0
        self._troubled: dict[str, float] = {}
        """By target, until when a fault is likelier."""
        self._spells: dict[str, tuple[float, str]] = {}
        """By target, until when every request has the same fault."""

    @property
    def faults(self) -> StoreFaults:
        """The faults of requests from now on."""
        return self._faults

    @faults.setter
    def faults(self, faults: StoreFaults) -> None:
        self._faults, self._kinds = faults, faults.kinds()

    def session(self) -> aiohttp.ClientSession:
        """Returns one process's session."""
        return session(self.send)

    def go_away(self, seconds: float) -> None:
        """Makes it unavailable for this time, unless the store has just come back."""
        now = self.loop.time()
        if self._away_until and now < self._away_until + _RESTS_SECONDS:
            return
        self._away_until = now + seconds
        self._trace.note("store away", detail=f"for {seconds:.1f} s")

    def send(self, request: SentRequest) -> "asyncio.Future[StoreResponse]":
        """Sends a request and returns the future of its answer."""
        answer: asyncio.Future[StoreResponse] = self.loop.create_future()
        fate = (self.meets and self.meets.fault_of(request, request.by)) or self._fate(request.goes_to)
        there, back = self._way(), self._way()
        if fate == "no_connection":
            self._later(there, fail, answer, no_connection("cosmos.invalid"))
        elif fate == "lost_before":
            self._trace.note("lost", _short(request.path), f"{request.method} before it arrived")
            self._later(there, fail, answer, aiohttp.ServerDisconnectedError())
        else:
            self._later(there, self._arrive, request.by, request, fate, answer, back)
        return answer

    def _arrive(
        self, who: str, request: SentRequest, fate: str | None, answer: "asyncio.Future[Any]", back: float
    ) -> None:
        if fate == "timed_out":
            if self._chance.random() < _DONE_ALL_THE_SAME:
                self._serve(who, request, fate)
            self._later(back, set_answer, answer, _TIMED_OUT)
            return
        response = self._serve(who, request, fate)
        if fate == "lost_after":
            self._later(back, fail, answer, aiohttp.ServerDisconnectedError())
        elif fate == "silent":
            self._later(_SILENCE_SECONDS, fail, answer, aiohttp.SocketTimeoutError())
        else:
            self._later(back, set_answer, answer, response)

    def _serve(self, who: str, request: SentRequest, fate: str | None) -> StoreResponse:
        account, faults = self.account, self._faults
        self.requests += 1
        account.faults.clear()
        if fate in _SERVED:
            account.faults.add(_SERVED[fate])
        lag = self.meets and self.meets.lag_seconds(request)
        if lag is None and faults.lag and self._chance.random() < faults.lag:
            lag = self._chance.uniform(0.0, faults.lag_seconds)
        if lag is not None:
            account.faults.add(Fault(kind="lag", seconds=lag))
        answer, sent = account.serve(request.method, request.path, request.headers, request.body)
        text = (answer.body or "").encode()
        result = f"{request.method} {answer.status} {len(text)} {zlib.crc32(text):08x}"
        befell = f"{fate or ''}{'' if lag is None else ' lag'}"
        self._trace.note(request.kind, _short(request.path), f"{result} {befell}".rstrip(), instance=who)
        response = StoreResponse(answer.status, CIMultiDict(sent), text)
        for saw in self.saw:
            saw(self.loop.time(), request, response)
        return response

    def _fate(self, place: str) -> str | None:
        """Draws a fault; one fault makes another at the same target likelier."""
        now = self.loop.time()
        if now < self._away_until:
            return "no_connection"
        if not self._kinds:
            return None
        until, name = self._spells.get(place, (0.0, ""))
        if now < until:
            return name
        total = sum(share for _, share in self._kinds)
        ends = self._troubled.get(place, -_RESTS_SECONDS)
        near = min(self._faults.near, _MOST / total) if now < ends else 1.0
        drawn = self._chance.random()
        for name, share in self._kinds:
            drawn -= share * max(near, 1.0)
            if drawn < 0:
                if now > ends + _RESTS_SECONDS:
                    self._troubled[place] = now + _NEAR_SECONDS
                if name in _SPELLS and "/colls/" in place and self._chance.random() < _LASTS:
                    self._spells[place] = (now + self._chance.uniform(0.0, _LONGEST_SPELL_SECONDS), name)
                return name
        return None

    def _way(self) -> float:
        chance = self._chance
        if self._faults.slow and chance.random() < self._faults.slow:
            return chance.uniform(0.0, self._faults.longest_seconds)
        return chance.uniform(_QUICKEST, _SLOWEST)

    def _later(self, seconds: float, call: Any, *arguments: Any) -> None:
        self.loop.call_later(seconds, call, *arguments, context=self.loop.outside())


_TIMED_OUT = StoreResponse(
    408, CIMultiDict({"Content-Type": "application/json"}), b'{"code":"RequestTimeout"}'
)


def _short(path: str) -> str:
    """Shortens a path by the account's parts, which are always the same."""
    return path.partition("/colls/")[2] or path
