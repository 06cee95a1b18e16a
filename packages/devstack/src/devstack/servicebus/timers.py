"""No timer of a connection outlives it, and a peer that has gone silent ends it.

Source: OASIS AMQP 1.0 part 2, 2.4.5.
"""

import asyncio
from collections.abc import Callable

from devstack.servicebus.codec.errors import CONNECTION_FORCED, AmqpError
from devstack.servicebus.codec.frames import EMPTY_FRAME

HEARTBEAT_SECONDS = 4.0
"""A client hears from us at least so often: the sync SDK's keep-alive thread waits for a frame with its lock held."""


class Timers:
    """The calls that a connection is to make later."""

    def __init__(self) -> None:
        self._handles: list[asyncio.TimerHandle] = []
        self._stopped = False

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call in ``seconds``, unless the connection has ended by then."""
        if self._stopped:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._handles = [handle for handle in self._handles if handle.when() > now]
        self._handles.append(loop.call_later(seconds, call))

    def stop(self) -> None:
        """The connection has ended."""
        self._stopped = True
        for handle in self._handles:
            handle.cancel()


class Liveness:
    """Notices a silent client after ``idle_seconds``, and lets the client hear from us in time."""

    def __init__(
        self,
        timers: Timers,
        idle_seconds: float,
        write: Callable[[bytes], None],
        close: Callable[[AmqpError], None],
    ) -> None:
        self._timers = timers
        self._idle_seconds = idle_seconds
        self._write = write
        self._close = close
        self._last_heard = 0.0

    @property
    def announced_ms(self) -> int:
        """The idle time-out that the client is told: half of the real one, as AMQP advises."""
        return int(self._idle_seconds * 500)

    def start(self) -> None:
        self.heard()
        self._check()

    def heard(self) -> None:
        """The client sent something."""
        self._last_heard = asyncio.get_running_loop().time()

    def beat(self, wanted_ms: int | None) -> None:
        """Send heartbeats from now on, twice in the time that the client gives us to be silent, or more often."""
        seconds = HEARTBEAT_SECONDS if wanted_ms is None else min(HEARTBEAT_SECONDS, wanted_ms / 2000)
        self._beat(max(0.01, seconds))

    def _beat(self, seconds: float) -> None:
        self._write(EMPTY_FRAME)
        self._timers.later(seconds, lambda: self._beat(seconds))

    def _check(self) -> None:
        left = self._last_heard + self._idle_seconds - asyncio.get_running_loop().time()
        if left <= 0:
            self._close(
                AmqpError(CONNECTION_FORCED, "The connection was inactive for longer than its idle time-out.")
            )
            return
        self._timers.later(left + 0.001, self._check)
