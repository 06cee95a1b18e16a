"""Answers the liveness and readiness probes of a container platform.

``GET /healthz`` is 200 while the worker's loops go round, also when each round fails: a restart would not bring the
store back. ``GET /readyz`` is 200 while the worker does its work, and 503 with the reason otherwise. ``GET /metrics``
returns the process's metrics to Prometheus, if a setting asks for it. Each connection gets one answer and is closed
within ``ANSWER_SECONDS``, and at most ``MOST_CONNECTIONS`` are open: a client that can reach the port learns no more
than these answers and uses no more than these connections. One more closes the oldest, so a client that holds all of
them cannot keep the platform out, which would restart the worker.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import field
from http import HTTPStatus
from typing import Any, Protocol

from cosmos_outbox.inbox.errors import InboxError, StoreUnavailable, reason_of
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle, own_failures
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import InfraError, Misconfigured
from cosmos_outbox.telemetry.export import scraped
from cosmos_outbox.telemetry.liveness import wait

ANSWER_SECONDS = 5.0
MOST_CONNECTIONS = 16
STUCK_SECONDS = 300.0
"""A loop without a round for this time counts as stuck, unless ``Health.longest_round_seconds`` is longer."""

_LONGEST_HEAD = 8 * 1024
_LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[^\[\]:/\s]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Address:
    """The address at which probes are answered; port 0: a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Returns the address in ``[HOST:]PORT``. Raises ValueError."""
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > 65_535:
            raise ValueError(f"{text!r} is no address: write a port such as 8080, or a host and a port")
        return cls((match["host"] or _LOOPBACK).strip("[]"), int(match["port"]))


class Health(Protocol):
    """The state of a worker, for probes and for the log."""

    @property
    def silent_seconds(self) -> float:
        """The time since the slowest of the worker's loops completed a round."""

    @property
    def longest_round_seconds(self) -> float:
        """The longest time of a round that is slow but healthy: a restart would only begin it again."""

    async def trouble(self) -> str | None:
        """Returns why the worker does not do its work now, without names or addresses; None: it does."""

    def line(self) -> str:
        """Returns one line about the work done and the current problem."""


@asynccontextmanager
async def answered(address: Address | None, health: Health) -> AsyncIterator[None]:
    """Answers probes until the body ends; None: answers none. Raises Misconfigured if the address cannot be used."""
    if address is None:
        yield
        return
    probes = _Probes(health)
    try:
        server = await asyncio.start_server(
            probes.answer_connection, address.host, address.port, limit=_LONGEST_HEAD
        )
    except OSError as error:
        raise Misconfigured(
            f"probes cannot be answered at {address.host}, port {address.port} ({error.strerror}): choose another "
            "address with --probes"
        ) from error
    try:
        host, port = server.sockets[0].getsockname()[:2]
        _log.info("GET /healthz and /readyz are answered at %s, port %d", host, port)
        yield
    finally:
        server.close()  # do not wait for open connections: since Python 3.12 that would delay a stop


class _Probes:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._open: dict[asyncio.Task[None], None] = {}
        """The tasks that answer a connection, the oldest first."""

    async def answer_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request, and closes."""
        mine = asyncio.current_task()
        assert mine is not None, "the server runs this in a task for each connection"
        if len(self._open) >= MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        self._open[mine] = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(*await self._answer(head)))
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.debug("a probe was not answered: %s", type(error).__name__)
        except asyncio.CancelledError:  # not raised: Python up to 3.12.1 would log a traceback
            _log.debug("a probe was not answered: another one took its place, or the worker ends")
        finally:
            self._open.pop(mine, None)
            writer.transport.abort()  # a client that reads nothing would hold it for ever

    async def _answer(self, head: bytes) -> tuple[HTTPStatus, dict[str, Any] | tuple[bytes, str]]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"status": "only GET"}
        match path:
            case b"/healthz":
                return self._alive()
            case b"/readyz":
                return await self._ready()
            case b"/metrics" if (found := scraped()) is not None:
                return HTTPStatus.OK, found
            case b"/metrics":
                return HTTPStatus.NOT_FOUND, {"status": "set OTEL_METRICS_EXPORTER=prometheus to count here"}
        return HTTPStatus.NOT_FOUND, {"status": "no such probe: ask /healthz, /readyz or /metrics"}

    def _alive(self) -> tuple[HTTPStatus, dict[str, Any]]:
        silent = self._health.silent_seconds
        if silent > max(STUCK_SECONDS, self._health.longest_round_seconds):
            _log.error("a loop has had no iteration for %.0f s: the liveness probe fails", silent)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "stuck"}
        return HTTPStatus.OK, {"status": "alive"}

    async def _ready(self) -> tuple[HTTPStatus, dict[str, Any]]:
        reason = await self._health.trouble()
        if reason is not None:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "reason": reason}
        return HTTPStatus.OK, {"status": "ready"}


def _response(status: HTTPStatus, answer: dict[str, Any] | tuple[bytes, str]) -> bytes:
    body, kind = answer if isinstance(answer, tuple) else (json.dumps(answer).encode(), "application/json")
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    ).encode() + body


HEALTH_SECONDS = 60.0
"""The interval of the health line; a failure that lasts is logged with it, not at each attempt."""

DRAIN_SECONDS = 20.0
"""The longest time that a stop waits for current work. Kubernetes kills 30 s after SIGTERM by default."""


@dataclass
class WorkerHealth:
    """The state of a worker: a base of :class:`Health`."""

    wired: Wired
    stop: asyncio.Event
    throttle: LogThrottle = field(default_factory=LogThrottle, kw_only=True)

    def waiting(self) -> str | None:
        """Returns why its work waits, apart from the store; None: it does not."""
        raise NotImplementedError

    def line(self) -> str:
        """See :class:`Health`."""
        raise NotImplementedError

    async def trouble(self) -> str | None:
        """Returns why the worker does not do its work."""
        if self.stop.is_set():
            return "the worker is asked to stop"
        if reason := self.waiting():
            return reason
        try:
            await self.wired.check()
        except (OutboxError, InfraError, InboxError) as error:
            if self.throttle.due():
                _log.error("the store cannot be used: %s", error)
            return "the store cannot be used: the log says why"
        return None

    async def log(self) -> None:
        """Logs the health line every minute until the worker is asked to stop."""
        while not await wait(self.stop, HEALTH_SECONDS):
            _log.info("health: %s", self.line())


async def every(
    seconds: float,
    stop: asyncio.Event,
    waits: str,
    work: Callable[[], Awaitable[object]],
    *,
    first: float | None = None,
) -> None:
    """Repeats the work until ``stop`` is set; ``waits``: the work that a failure delays; ``first``: the first pause."""
    pause = seconds if first is None else first
    while not await wait(stop, pause):
        pause = seconds
        try:
            with own_failures():
                await work()
        except (StoreUnavailable, OutboxError, Misconfigured) as error:
            _log.error("%s: %s", waits, error)
        except Exception as error:  # noqa: BLE001 - otherwise the loop would end unnoticed
            _log.error("%s, because of a bug: %s", waits, reason_of(error))
