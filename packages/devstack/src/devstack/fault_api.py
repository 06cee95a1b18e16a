"""Faults on demand, the same on every server: each happens as often as it was asked for, to what it names, and is gone.

Only with ``--faults``, unsigned, JSON in and out, on the port of Cosmos DB and on the management port of Service Bus::

    POST   /_devstack/faults  {"kind": "drop-after-commit", "count": 2}
    GET    /_devstack/faults
    DELETE /_devstack/faults

A connection that ends without an answer looks the same to a client whatever it leaves behind: ``fail-before-commit``
nothing, ``drop-after-commit`` everything.
"""

import random
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Generic, Self, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

MAX_FAULTS = 100


class CallRefused(Exception):
    """What is wrong with an administrative call; ``status`` says how it is answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Call(BaseModel):
    """The body of an administrative call. Names are camelCase on the wire."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    @classmethod
    async def read(cls, request: web.Request) -> Self:
        """Raises CallRefused."""
        try:
            return cls.model_validate_json(await request.read())
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            raise CallRefused(400, "; ".join(problems)) from error


class Fault(Call):
    """``count`` requests that match meet it, then it is gone, or already after ``for_seconds``. Null: all requests.

    A server narrows ``kind`` to those that it knows, and adds what a request can be matched by.
    """

    kind: str
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = 1
    for_seconds: Annotated[float, Field(gt=0, le=86400)] | None = None
    seconds: Annotated[float, Field(ge=0, le=600)] = 1.0
    """How slow, or how old."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """How many of the requests that match meet it, drawn for each; only those are counted."""


F = TypeVar("F", bound=Fault)


class Faults(Generic[F]):
    """The faults that are still to happen, the oldest first."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, chance: random.Random | None = None
    ) -> None:
        """``chance`` draws the share of the requests; None: the operating system does."""
        self._clock = clock
        self._chance = chance or random.SystemRandom()
        self._pending: list[tuple[F, float]] = []

    def add(self, fault: F) -> None:
        """Raises CallRefused when there are too many."""
        if len(self.pending()) >= MAX_FAULTS:
            raise CallRefused(400, f"there are {MAX_FAULTS} faults already")
        lifetime = float("inf") if fault.for_seconds is None else fault.for_seconds
        self._pending.append((fault, self._clock() + lifetime))

    def clear(self) -> None:
        self._pending.clear()

    def hits(self, fault: F) -> bool:
        """Whether this request is of the fault's share."""
        return self._chance.random() < fault.share

    def pending(self) -> list[F]:
        now = self._clock()
        self._pending = [(fault, ends) for fault, ends in self._pending if ends > now]
        return [fault for fault, _ in self._pending]

    def take(self, meets: Callable[[F], bool]) -> F | None:
        """The first fault for which ``meets`` holds, counted as having happened; None when there is none."""
        if not self._pending:
            return None
        for index, fault in enumerate(self.pending()):
            if meets(fault):
                if fault.count is not None:
                    left = fault.model_copy(update={"count": fault.count - 1})
                    self._pending[index : index + 1] = [(left, self._pending[index][1])] if left.count else []
                return fault
        return None


Handler = Callable[[web.Request], Awaitable[web.Response]]


def fault_routes(kind: type[F], faults: Faults[F], happens_now: Callable[[F], bool]) -> list[web.RouteDef]:
    """The calls. ``happens_now`` carries out a fault that waits for no request, and says whether it was one."""

    async def add(request: web.Request) -> web.Response:
        fault = await kind.read(request)
        if not happens_now(fault):
            faults.add(fault)
        return _listed(faults)

    async def show(_request: web.Request) -> web.Response:
        return _listed(faults)

    async def clear(_request: web.Request) -> web.Response:
        faults.clear()
        return _listed(faults)

    return [
        web.post("/_devstack/faults", answering(add)),
        web.get("/_devstack/faults", answering(show)),
        web.delete("/_devstack/faults", answering(clear)),
    ]


def answering(handler: Handler) -> Handler:
    """What is wrong with the call, as an answer."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except CallRefused as error:
            return web.json_response({"error": str(error)}, status=error.status)

    return handle


def _listed(faults: Faults[Any]) -> web.Response:
    pending = [fault.model_dump(by_alias=True, exclude_none=True) for fault in faults.pending()]
    return web.json_response({"faults": pending})
