"""Describes a service to a simulation: its declaration, its language, and its clients' requests.

A client records each request before it is sent and each answer when it comes. A request runs in an instance of the
API, and may outlive its client's patience; an instance that crashes gives no answer.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from azure.cosmos.aio import ContainerProxy

from cosmos_outbox.http.answering import STATUS_OF
from cosmos_outbox.http.message import Handler
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.outbox.errors import RefusedBefore
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.transports import Name
from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.trace import RunTrace
from outbox_simulation.engine.webhook_double import TakesPosts
from outbox_simulation.invariants.history import History, cause
from outbox_simulation.invariants.language import Language
from outbox_simulation.invariants.reads import EVERYBODY
from outbox_simulation.invariants.records import Answered, Attempted, Call, FinallyListed, SeenEntry

PATIENCE_SECONDS = 12.0
"""The time that a client waits for an answer."""

REFUSALS = {400, 404, 405, 409, 410, 412, 413, 415, 422, 429}
"""The statuses which mean that nothing was changed."""


@dataclass(frozen=True)
class Reply:
    """An answer's facts about an aggregate."""

    status: int = 200
    aggregate: str | None = None
    sequence: int | None = None
    body: dict[str, Any] | None = None
    etag: str | None = None
    replayed: bool = False


Do = Callable[[Wired, Origin], Awaitable[Reply]]
"""A request, as the API carries it out."""


@dataclass(frozen=True)
class Wish:
    """One operation, requested once or more."""

    name: str
    call: Call
    do: Do
    aggregate: str | None = None
    events: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    key: str | None = None
    if_match: str | None = None
    reuses_key: bool = False
    newest: bool = False
    """Whether a read misses nothing that anybody was answered before; else nothing that its process was."""
    numbers: "count[int]" = field(default_factory=lambda: count(1))


class Serves(Protocol):
    """An instance of the API."""

    @property
    def instance(self) -> SimulatedInstance: ...
    @property
    def wired(self) -> Wired: ...


@dataclass
class SimulatedClient:
    """Makes one request after the other."""

    name: str
    loop: Loop
    trace: RunTrace
    history: History
    chance: random.Random
    api: Callable[[], Serves | None]
    """Returns an instance that takes the next request; None: none does."""
    aggregates: int
    etags: dict[str, str | None]
    """The aggregates that probably exist, with the newest version seen; shared by all clients."""
    errors: Mapping[type[Exception], int]
    focus: set[str] = field(default_factory=set)
    """The aggregates that are changed preferably."""
    kept: list[Wish] = field(default_factory=list)
    """Creations with a key that were answered."""
    numbers: "count[int]" = field(default_factory=count)
    stopped: bool = False

    def next_name(self) -> str:
        """Returns the name of the next operation."""
        return f"{self.name}-{next(self.numbers)}"

    def one_of(self, known: Sequence[str]) -> str:
        """Draws one of these existing aggregates."""
        return self.chance.choice([each for each in known if each in self.focus] or known)

    async def ask(self, wish: Wish) -> Answered:
        """Makes one request, and records it and its answer."""
        number = next(wish.numbers)
        origin, api = Origin(cause(wish.name, number)), self.api()
        session = EVERYBODY if wish.newest else None if api is None else api.instance.name
        asked = Attempted(
            at=self.loop.time(), operation=wish.name, number=number, call=wish.call, aggregate=wish.aggregate,
            events=dict(wish.events), key=wish.key, if_match=wish.if_match, reuses_key=wish.reuses_key,
            session=session,
        )  # fmt: skip
        self.history.add([asked])
        self.trace.note(f"asks {wish.call}", wish.aggregate or "", origin.correlation_id, instance=self.name)
        reply = await self._reply(wish, origin, api)
        answer = Answered(
            at=self.loop.time(), operation=wish.name, number=number, outcome="unknown",
        )  # fmt: skip
        if reply is not None:
            outcome = (
                "acknowledged" if reply.status < 300 else "refused" if reply.status in REFUSALS else "unknown"
            )
            answer = answer.model_copy(
                update={
                    "outcome": outcome, "status": reply.status or None, "aggregate": reply.aggregate,
                    "sequence": reply.sequence, "body": reply.body, "etag": reply.etag, "replayed": reply.replayed,
                }
            )  # fmt: skip
        self.history.add([answer])
        status = "no answer" if reply is None else str(reply.status)
        about = answer.aggregate or wish.aggregate or ""
        self.trace.note("is answered", about, f"{origin.correlation_id}: {status}", instance=self.name)
        return answer

    async def _reply(self, wish: Wish, origin: Origin, api: Serves | None) -> Reply | None:
        if api is None:
            return Reply(status=429)  # no instance took it, so nothing was changed
        work = self.loop.begin(api.instance, self._answer(wish, api.wired, origin))
        done, _ = await asyncio.wait({work}, timeout=PATIENCE_SECONDS)
        return work.result() if done else None

    async def _answer(self, wish: Wish, wired: Wired, origin: Origin) -> Reply:
        try:
            return await wish.do(wired, origin)
        except Exception as error:  # noqa: BLE001 - as a service's HTTP edge does
            known = next((status for kind, status in self.errors.items() if isinstance(error, kind)), None)
            status = known or next((status for kind, status, _ in STATUS_OF if isinstance(error, kind)), 500)
            if isinstance(error, RefusedBefore):
                status = error.status
            if status == 500:
                self.trace.note("fails", wish.aggregate or "", f"{origin.correlation_id}: {error!r}")
            return Reply(status=status)


class Subject(Protocol):
    """The properties of the simulated service that a world uses."""

    @property
    def service(self) -> Service: ...
    @property
    def before(self) -> Service | None:
        """The service in the release before; None: only settings differ."""
        ...

    @property
    def act(self) -> Callable[[SimulatedClient], Awaitable[None]]:
        """Makes one request of a client."""
        ...

    @property
    def read_models(self) -> Sequence[str]:
        """The containers of its read models."""
        ...

    @property
    def errors(self) -> Mapping[type[Exception], int]:
        """The status of each error of its own."""
        ...


@dataclass(frozen=True)
class Others:
    """A writer past the service."""

    time: Callable[[], float]
    chance: random.Random
    history: History
    feed: Callable[[], AbstractAsyncContextManager[ContainerProxy]]
    """The container of the aggregates."""


ActAsOthers = Callable[[Others, str], Awaitable[None]]
"""Changes the aggregate of this id as another version of the service, past the service. Raises nothing."""


ReadOne = Callable[[Wired, str], Coroutine[Any, Any, FinallyListed | None]]
"""Reads one aggregate by its id, no older than the call; None: it is gone. Raises OutboxError."""


@dataclass(frozen=True)
class SimulatedService:
    """A service under simulation."""

    service: Service
    language: Language
    act: Callable[[SimulatedClient], Awaitable[None]]
    """Makes one request of a client."""
    listed: Callable[[Wired, float], Coroutine[Any, Any, Sequence[FinallyListed]]]
    """Returns all existing aggregates, at this time. Raises OutboxError."""
    shown: Callable[[Wired, float], Coroutine[Any, Any, Sequence[SeenEntry]]]
    """Returns all existing entries of its read model. Raises OutboxError."""
    read_models: Sequence[str]
    """The containers of its read models."""
    errors: Mapping[type[Exception], int] = field(default_factory=dict)
    """The status of each error of its own."""
    others: ActAsOthers | None = None
    before: Service | None = None
    """The service in the release before; None: only settings differ."""
    receiver: Callable[[], TakesPosts] | None = None
    """Creates the receiver of events over a webhook; then the service has no subscribers, nor read models."""
    read: ReadOne | None = None
    """Reads an aggregate for that receiver on a skip marker; None: it knows no more than its events."""
    get: Handler | None = None
    """Answers a GET of one aggregate at its API, with which its read models can be healed; None: they are not."""
    posting: "SimulatedService | None" = None
    """The same service over a webhook."""
    over: Sequence[Name] = ("servicebus",)
    """The transports that seeds draw from."""
