"""A webhook's receiver in memory: the deployed publisher posts to it, with only its aiohttp session replaced.

The faults of each request are drawn, with the bus's chances: it cannot leave, it is lost on its way
there or back, it times out and arrives late, it comes twice; the receiver asks for a pause, fails, refuses this event,
fails at one aggregate for a while, or refuses everything for a while. A team's own receiver takes the requests.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import format_datetime
from functools import partial
from random import Random
from typing import Any, Protocol

import aiohttp
from multidict import CIMultiDict

from cosmos_outbox.testing.messages import Message
from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine.bus_queue import Sent, Taken
from outbox_simulation.engine.fault_injection import FaultyTransport
from outbox_simulation.engine.http import answer, fail, no_connection, session
from outbox_simulation.invariants.language import SKIP_MARKER
from outbox_simulation.invariants.records import FinallyListed, SeenEntry
from outbox_simulation.invariants.violation import Violation

URL = "https://receiver.invalid/events"
SECRET = "whsec_c2l4dGVlbiBhbmQgc2l4dGVlbiBieXRlcyBhcmU="  # noqa: S105 - of no receiver

_OF_THE_EVENT, _OF_THE_TARGET, _PASSING = (400, 413, 422), (401, 403, 404, 410, 302), (500, 502, 503, 408)
LATEST_SECONDS = 60.0
"""The longest time that a timed out request is under way."""
_REFUSES_ALL_SECONDS, _FAILS_SECONDS = (1.0, 30.0), (5.0, 90.0)
_SLOWEST_SECONDS = 12.0
"""The slowest answer of a receiver that fails at an aggregate."""
_REFUSED_AGAIN = 0.5
_TRIED = 3
"""The number of failures that justify setting an event aside."""
_TOO_EARLY = 409

Current = Callable[[], FinallyListed | None]
"""Returns the aggregate that was read; None: it is gone. Raises NotRead."""


class NotRead(Exception):
    """The state of an aggregate is not known."""


class TakesPosts(Protocol):
    """A team's own receiver, with its own data."""

    def reads(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Returns whether it reads the event's aggregate at the service before it takes it."""

    def take(self, headers: Mapping[str, str], body: bytes, now: float, current: Current) -> int:
        """Returns the status of its answer. ``now``: seconds since 1970; ``current``: the event's aggregate, if read.

        Raises the error of ``current``: it has taken nothing then.
        """

    def begin_anew(self, current: Mapping[str, FinallyListed | None]) -> None:
        """Resets it after a restore of the service. ``current``: all that the service shows, as it is now."""

    def entry(self, aggregate: str, at: float) -> SeenEntry | None:
        """Returns its entry of one aggregate."""

    def entries(self, at: float) -> Sequence[SeenEntry]:
        """Returns all its entries."""


class Posts(FaultyTransport):
    """One target. ``taken``: each request that its receiver has accepted."""

    queues: Mapping[str, Any] = {}

    def __init__(self, receiver: TakesPosts, **base: Any) -> None:
        """``base``: the base's arguments."""
        super().__init__(**base)
        self.wrong: list[Violation] = []
        """Events that came before their predecessor was accepted."""
        self.saw: Callable[[SeenEntry], None] = lambda _entry: None
        """Takes each version of the receiver's entries."""
        self.source: Callable[[str], Awaitable[FinallyListed | None]] = _unread
        """Reads an aggregate at the service. Raises NotRead."""
        self._receiver = receiver
        self._failures: dict[str, int] = {}
        """The failures of each event, since it was accepted last."""
        self._sick: dict[str, float] = {}
        """By aggregate, until when the receiver fails at it."""
        self._closed_until = 0.0
        self._reading = set[asyncio.Task[None]]()
        self._seen: dict[str, tuple[int, str | None]] = {}
        self._luck = Random(self._random.random())  # noqa: S311 - no secret

    def session(self) -> aiohttp.ClientSession:
        """Returns one process's session for posts."""
        return session(self._send)

    async def shown(self, _wired: object, at: float) -> Sequence[SeenEntry]:
        """Returns the receiver's entries now."""
        return self._receiver.entries(at)

    async def begin_anew(self) -> None:
        """Resets the receiver as its operator does after a restore, while nothing is posted. Raises NotRead."""
        shown = [each.aggregate for each in self._receiver.entries(self.now())]
        self._receiver.begin_anew({each: await self.source(each) for each in shown})
        self._seen.clear()
        for each in shown:
            self._look(each)

    async def _send(self, request: SentRequest) -> StoreResponse:
        """Sends a request. Raises aiohttp's errors."""
        waiting: asyncio.Future[StoreResponse] = asyncio.get_running_loop().create_future()
        there, chances, sent = self.way_seconds(), self.rates, _sent(request)
        if self.is_away():
            self.later(there, lambda: fail(waiting, no_connection(request.host)))
        elif self.strikes(chances.lost_before):
            self.later(there, lambda: fail(waiting, aiohttp.ServerDisconnectedError()))
        elif self.strikes(chances.cut):
            late = self._luck.uniform(0.0, LATEST_SECONDS)
            self.note("post is late", sent.aggregate, f"{sent.message.id}: {late:.1f} s, and unanswered")
            self.later(there + late, lambda: self._arrive_late(request, sent))
        else:
            self.later(there, lambda: self._arrive(request, sent, waiting))
        try:
            response = await waiting
        except BaseException:  # its sender got an error, or waits no longer
            self._failed(sent)
            raise
        if response.status < 300:
            self._failures.pop(sent.message.id, None)
        elif response.status in {*_PASSING, _TOO_EARLY}:
            self._failed(sent)
        return response

    def _arrive_late(self, request: SentRequest, sent: Sent) -> None:
        """Delivers a late copy; an event refused since is refused in this copy too, for the same reason."""
        if str(sent.message.data.get("id")) not in self.refused:
            self._serve(request, sent)

    def _arrive(self, request: SentRequest, sent: Sent, waiting: "asyncio.Future[StoreResponse]") -> None:
        self._serve(request, sent, lambda response: self._answer(request, sent, waiting, response))

    def _answer(
        self,
        request: SentRequest,
        sent: Sent,
        waiting: "asyncio.Future[StoreResponse]",
        response: StoreResponse,
    ) -> None:
        chances = self.rates
        if self.strikes(chances.again):
            self.later(self._luck.uniform(0.0, 5.0), lambda: self._arrive_late(request, sent))
        if self.strikes(chances.lost_after):
            self.later(self.way_seconds(), lambda: fail(waiting, aiohttp.ServerDisconnectedError()))
        else:
            slow = self._luck.uniform(0.0, _SLOWEST_SECONDS) if self._is_sick(sent) else 0.0
            self.later(self.way_seconds() + slow, lambda: answer(waiting, response))

    def _is_sick(self, sent: Sent) -> bool:
        return self.now() < self._sick.get(sent.aggregate, 0.0)

    # -- at the receiver

    def _serve(
        self, request: SentRequest, sent: Sent, then: Callable[[StoreResponse], None] = lambda _response: None
    ) -> None:
        """Takes a request, after the aggregate's read if there is one; ``then`` takes the answer, except a copy's."""
        if not self._receiver.reads(request.headers, request.body):
            then(self._served(request, sent, _nothing_to_read))
            return

        async def read_first() -> None:
            current = await self._current(sent.aggregate)
            then(self._served(request, sent, current))

        reading = asyncio.get_running_loop().create_task(read_first(), context=self._context.copy())
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _current(self, aggregate: str) -> Current:
        try:
            found = await self.source(aggregate)
        except NotRead as error:
            self.note("is not read", aggregate, str(error))
            return partial(_fails, error)
        self.note("is read", aggregate, "gone" if found is None else f"at {found.sequence}")
        return lambda: found

    def _served(self, request: SentRequest, sent: Sent, current: Current) -> StoreResponse:
        refusal = self._refusal(sent)
        if refusal is not None:
            status, headers = refusal
            self.note("is refused", sent.aggregate, f"{sent.message.id}: {status}")
            if status in _OF_THE_EVENT:
                self.note("bus refuses", sent.aggregate, str(sent.message.data.get("id")))
            return StoreResponse(status, CIMultiDict(headers), b"no")
        try:
            now = self.wall(self.now()).timestamp()
            status = self._receiver.take(request.headers, request.body, now, current)
        except NotRead:
            status = 500
        if status == _TOO_EARLY:
            self.wrong.append(
                Violation("order", f"{sent.aggregate}: {sent.message.id} was posted before its turn")
            )
        if status >= 300:
            self.note("is refused", sent.aggregate, f"{sent.message.id}: {status} by the receiver itself")
            return StoreResponse(status, CIMultiDict(), b"no")
        taken = Taken(self.now(), len(self.taken) + 1, sent)
        self.taken.append(taken)
        self.note("bus takes", sent.aggregate, f"{sent.message.id} as {taken.number}")
        self._look(sent.aggregate)
        return StoreResponse(status, CIMultiDict(), b"")

    def _refusal(self, sent: Sent) -> tuple[int, Mapping[str, str]] | None:
        """Returns the receiver's refusal, because of the event or not."""
        chances, now, luck = self.rates, self.now(), self._luck
        if now < self._closed_until or self.strikes(chances.refuse_mix):
            if now >= self._closed_until:
                self._closed_until = now + luck.uniform(*_REFUSES_ALL_SECONDS)
            return luck.choice(_OF_THE_TARGET), {}
        if self.strikes(chances.busy):
            seconds = luck.randrange(1, 20)
            date = format_datetime(self.wall(now + seconds), usegmt=True)
            return 429, luck.choice([{}, {"Retry-After": str(seconds)}, {"Retry-After": date}])
        if self.strikes(chances.buried):
            self._sick[sent.aggregate] = now + luck.uniform(*_FAILS_SECONDS)
        if self._is_sick(sent) or self.strikes(chances.quota):
            return luck.choice(_PASSING), {}
        if self._is_refused(sent):
            return luck.choice(_OF_THE_EVENT), {}
        return None

    def _is_refused(self, sent: Sent) -> bool:
        """Draws whether it is refused; one that was refused is often refused again: its reason remains."""
        event, chance = str(sent.message.data.get("id")), self.rates.refuse_one
        if sent.message.data.get("action") == SKIP_MARKER:
            return False
        refused = self.refuses(sent.aggregate, event) or self.strikes(
            _REFUSED_AGAIN if chance and event in self.refused else chance
        )
        self.refused |= {event} if refused else set()
        return refused

    def _failed(self, sent: Sent) -> None:
        """Records a failed attempt, which its sender sees or finds out."""
        name = sent.message.id
        self._failures[name] = self._failures.get(name, 0) + 1
        if self._failures[name] >= _TRIED:
            self.note("bus fails", sent.aggregate, str(sent.message.data.get("id")))

    def _look(self, aggregate: str) -> None:
        entry = self._receiver.entry(aggregate, self.now())
        if entry is not None and self._seen.get(aggregate) != (entry.sequence, entry.applied_at):
            self._seen[aggregate] = (entry.sequence, entry.applied_at)
            self.saw(entry)


async def _unread(aggregate: str) -> FinallyListed | None:
    raise NotRead(f"nobody reads {aggregate}")


def _nothing_to_read() -> FinallyListed | None:
    raise AssertionError("the receiver said that it would read nothing")


def _fails(error: NotRead) -> FinallyListed | None:
    raise error


def _sent(request: SentRequest) -> Sent:
    """Returns a request as its receiver reads it; the aggregate replaces the session, which webhooks lack."""
    document = json.loads(request.body)
    name, aggregate = request.headers["webhook-id"], str(document["subject"])
    return Sent(Message(json.dumps(document["data"]).encode(), {}, name), aggregate, aggregate)
