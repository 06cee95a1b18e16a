"""The only source of time, ids and random numbers, so that a simulation replaces them without patching code.

They are looked up at each call, in the context of the calling task. A task inherits its context from the task that
started it, so ``using`` once, where an instance begins, gives the whole instance a clock and ids of its own.
The event loop's own waits (``asyncio.timeout``, and ``asyncio.sleep`` for a pause that does not use :func:`sleep`) take
a number of seconds, never a time: each deadline is a time of :func:`monotonic`.

No code binds :data:`SYSTEM` or one of its parts at import or as a default; :func:`utc_now` and :func:`monotonic` may be
bound anywhere, since they look up the source at each call.

A thread that is not started by ``asyncio.to_thread`` has an empty context, and so the system's sources. OpenTelemetry
reads gauges in a thread of its own: ages that are computed there use the system's clock.

Secrets (a key, a nonce) do not come from ``random``: :func:`secret` takes them from the operating system, whatever
random numbers a test sets. Only a simulation, which has nothing to protect, draws them from its seed.
"""

import asyncio
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from uuid import UUID, uuid4

from cosmos_outbox.kernel.dataclass import dataclass

Clock = Callable[[], datetime]
"""Returns the time in UTC."""


def _system_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Sources:
    """The sources of time, ids and random numbers of one instance of a service."""

    now: Clock
    """The wall clock (UTC, with its zone). It may be wrong, and may be set back."""
    monotonic: Callable[[], float]
    """Seconds from an arbitrary start; never goes back. It must run as the event loop's clock does."""
    new_id: Callable[[], UUID]
    """Returns a unique id: a version 4 UUID, with 122 random bits."""
    random: random.Random
    """Chooses between equally correct options."""
    machine: Callable[[], str] = socket.gethostname
    """Returns the machine's name, for people."""
    secret: Callable[[int], bytes] = os.urandom
    """Returns so many unpredictable bytes."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits for so many seconds; in a test they may pass at once."""


SYSTEM = Sources(_system_now, time.monotonic, uuid4, random.SystemRandom())
"""The sources of a deployed service. Its random numbers are the operating system's, so that forked processes differ."""

_sources: ContextVar[Sources] = ContextVar("sources", default=SYSTEM)


@contextmanager
def using(sources: Sources) -> Iterator[None]:
    """Use these sources in the block, and in every task that is started in it."""
    before = _sources.set(sources)
    try:
        yield
    finally:
        _sources.reset(before)


def use(sources: Sources) -> None:
    """Use these sources until the end of this context, which must belong to one instance."""
    _sources.set(sources)


def sources() -> Sources:
    """Returns the sources of this context."""
    return _sources.get()


def utc_now() -> datetime:
    """Returns the time now (UTC): in a test in memory, the test's."""
    return _sources.get().now()


def monotonic() -> float:
    """Returns the seconds since a start that is the same for all calls in an instance, for durations."""
    return _sources.get().monotonic()


def new_id() -> UUID:
    """Returns a unique id."""
    return _sources.get().new_id()


def randomness() -> random.Random:
    """Returns random numbers for choices where every outcome is correct; not for secrets."""
    return _sources.get().random


def secret(size: int) -> bytes:
    """Returns so many unpredictable bytes, for a key or a nonce."""
    return _sources.get().secret(size)


async def sleep(seconds: float) -> None:
    """Wait for so many seconds between two attempts at something."""
    await _sources.get().sleep(seconds)


def machine() -> str:
    """Returns the machine's name, for people: two processes on it have the same."""
    return _sources.get().machine()
