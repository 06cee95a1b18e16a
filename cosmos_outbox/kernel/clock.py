"""The time, what is new and what is drawn by lot come from here alone, so that a simulation patches none of our code.

They are looked up when they are asked for, in the context of the task that asks. A task inherits its context from the
task that began it, so ``using`` once, where an instance begins, gives that whole instance a clock and ids of its own.
The event loop's own waits (``asyncio.timeout``, and ``asyncio.sleep`` where a pause is not of :func:`sleep`) take a
number of seconds, never a time: each time at which something ends is one of :func:`monotonic`.

Nothing binds :data:`SYSTEM` or one of its parts at import or as a default; :func:`utc_now` and :func:`monotonic` may be
bound anywhere, since they look again at each call.

A thread that is not begun by ``asyncio.to_thread`` has an empty context, so the sources of the system. OpenTelemetry
reads gauges in a thread of its own: what is reported there is as old as the system's clock says.

What guards a secret (a key, a nonce) is no luck: :func:`secret` gives it, by the operating system, whatever a test sets
for luck. Only a simulation, where nothing is to be guarded, draws it from its seed.
"""

import asyncio
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

Clock = Callable[[], datetime]
"""Tells the time in UTC."""


def _system_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Sources:
    """Where one instance of a service gets its time, its ids and its luck from."""

    now: Clock
    """The wall clock (UTC, with its zone). It may be wrong, and may be set back."""
    monotonic: Callable[[], float]
    """Seconds from some beginning; never goes back. It must run as the event loop's clock does."""
    new_id: Callable[[], UUID]
    """An id that nobody else has: a version 4 UUID, 122 bits of them drawn."""
    random: random.Random
    """Chooses among what is equally right."""
    machine: Callable[[], str] = socket.gethostname
    """The machine's name, for people."""
    secret: Callable[[int], bytes] = os.urandom
    """So many bytes that nobody can foresee."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits for so many seconds, where a test's time may pass at once."""


SYSTEM = Sources(_system_now, time.monotonic, uuid4, random.SystemRandom())
"""Those of a deployed service. Its luck is the operating system's, so that two processes of one fork differ."""

_sources: ContextVar[Sources] = ContextVar("sources", default=SYSTEM)


@contextmanager
def using(sources: Sources) -> Iterator[None]:
    """What runs in the block, and every task that is begun in it, gets its time, ids and luck from these."""
    before = _sources.set(sources)
    try:
        yield
    finally:
        _sources.reset(before)


def use(sources: Sources) -> None:
    """As :func:`using`, until the end of this context: for one that is an instance's own."""
    _sources.set(sources)


def sources() -> Sources:
    """Those of this context."""
    return _sources.get()


def utc_now() -> datetime:
    """The time now (UTC)."""
    return _sources.get().now()


def monotonic() -> float:
    """For durations: the seconds since some beginning, the same for every call in an instance."""
    return _sources.get().monotonic()


def new_id() -> UUID:
    """An id that nobody else has."""
    return _sources.get().new_id()


def randomness() -> random.Random:
    """Draws lots, where every outcome is right; nothing that has to be unforeseeable."""
    return _sources.get().random


def secret(size: int) -> bytes:
    """So many bytes that nobody can foresee, for a key or a nonce."""
    return _sources.get().secret(size)


async def sleep(seconds: float) -> None:
    """Wait for so many seconds between two attempts at something."""
    await _sources.get().sleep(seconds)


def machine() -> str:
    """The name of the machine, for people: two processes on it have the same."""
    return _sources.get().machine()
