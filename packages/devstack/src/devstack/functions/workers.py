"""Functions run in worker processes, one call after the other in the next of them, and one that ends is replaced.

With ``FUNCTIONS_WORKER_PROCESS_COUNT`` above 1, successive batches of one lease are worked on by different processes,
and so are the retries of one batch. A function that runs longer than ``functionTimeout`` costs its whole process:
everything else that runs there fails too.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import os
import socket
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from devstack.functions.calls import Call, Loaded, NotLoaded, Outcome, framed, read
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import FunctionFailed, Input, RetryContext, RpcException, TraceContext
from devstack.service import CannotStart

COUNT_SETTING = "FUNCTIONS_WORKER_PROCESS_COUNT"
MOST = 10
RESTART_PAUSE_SECONDS = 0.5
_ENDED = RpcException(message="the worker process ended")

_log = logging.getLogger(__name__)


def worker_count() -> int:
    """How many processes the settings ask for. Raises CannotStart."""
    text = os.environ.get(COUNT_SETTING) or "1"
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise CannotStart(f"functions: {COUNT_SETTING} is {text!r}; set it to a number from 1 to {MOST}")
    return int(text)


class Begun(Protocol):
    """What is used of a process."""

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


async def begin(app: Path, descriptor: int) -> Begun:
    """A process that runs the app's functions for the other end of this socket. Tests put another way in its place."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "devstack.functions.worker", str(descriptor), str(app)),
        stdin=DEVNULL,
        # Standard output belongs to the READY line: what the app prints goes where it logs.
        stdout=2,
        pass_fds=[descriptor],
    )


class _WorkerProcess:
    """One process and the calls that run in it."""

    def __init__(self, process: Begun, answers: asyncio.StreamReader, calls: asyncio.StreamWriter) -> None:
        self._process = process
        self._calls = calls
        self._numbers = itertools.count()
        self._running: dict[int, asyncio.Future[Any]] = {}
        self._loaded: asyncio.Future[list[FunctionInfo]] = asyncio.get_running_loop().create_future()
        self._killed = False
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read(answers))

    @classmethod
    async def start(cls, app: Path) -> "tuple[_WorkerProcess, list[FunctionInfo]]":
        """The process, once it has imported the app, and the app's functions. Raises CannotStart."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await begin(app, theirs.fileno())
        worker = cls(process, *await asyncio.open_connection(sock=ours))
        try:
            return worker, await worker._loaded
        except BaseException:
            await worker.end()
            raise

    async def call(
        self, function: str, value: Input, trace_context: TraceContext, retry_context: RetryContext
    ) -> Any:
        call = Call(next(self._numbers), function, value, trace_context, retry_context)
        if not self.takes_calls:
            raise FunctionFailed(_ENDED)
        outcome = self._running[call.number] = asyncio.get_running_loop().create_future()
        self._calls.write(framed(call))  # if it has ended, who reads its answers finds out
        return await outcome

    @property
    def takes_calls(self) -> bool:
        """Not once it is killed: its end is seen only a moment later, and a call in between would fail."""
        return not self._killed and not self.ended.is_set()

    @property
    def is_busy(self) -> bool:
        """Whether a function runs in it, awaited or not."""
        return bool(self._running)

    def kill(self) -> None:
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """SIGKILL: whatever still runs in it is cut off."""
        self.kill()
        await self._process.wait()
        await self._reading
        self._calls.close()

    async def _read(self, answers: asyncio.StreamReader) -> None:
        try:
            while True:
                self._take(await read(answers))
        except (EOFError, OSError):
            self._fail_all()

    def _take(self, message: Loaded | NotLoaded | Outcome) -> None:
        if isinstance(message, Loaded):
            self._loaded.set_result(message.functions)
        elif isinstance(message, NotLoaded):
            self._loaded.set_exception(CannotStart(message.reason))
        elif not (waiting := self._running.pop(message.number)).done():
            if message.raised:
                waiting.set_exception(FunctionFailed(message.raised))
            else:
                waiting.set_result(message.returned)

    def _fail_all(self) -> None:
        if not self._loaded.done():
            self._loaded.set_exception(
                CannotStart("functions: the worker process ended while it imported the app; see its output")
            )
        for waiting in self._running.values():
            if not waiting.done():
                waiting.set_exception(FunctionFailed(_ENDED))
        self._running.clear()
        self.ended.set()


class Workers:
    """All worker processes of a host; an :class:`devstack.functions.invocation.Invoker`."""

    def __init__(self, app: Path, count: int, function_timeout: float) -> None:
        self._app = app
        self._timeout = None if math.isinf(function_timeout) else function_timeout
        self._workers: list[_WorkerProcess | None] = [None] * count
        self._turns = itertools.cycle(range(count))
        self._changed = asyncio.Condition()
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self) -> list[FunctionInfo]:
        """Start them; the app's functions. Raises CannotStart, and then no process is left."""
        self._workers[0], functions = await _WorkerProcess.start(self._app)
        try:
            for index in range(1, len(self._workers)):
                self._workers[index], _ = await _WorkerProcess.start(self._app)
        except BaseException:
            await self.close()
            raise
        self._keepers = [asyncio.create_task(self._keep(index)) for index in range(len(self._workers))]
        return functions

    async def invoke(
        self, function: str, value: Input, *, trace_context: TraceContext, retry_context: RetryContext
    ) -> Any:
        worker = await self._next()
        try:
            async with asyncio.timeout(self._timeout):
                return await worker.call(function, value, trace_context, retry_context)
        except TimeoutError:
            what = f"{function} ran longer than functionTimeout ({self._timeout:g} s)"
            _log.error("%s: its worker process is ended, with all that runs in it", what)
            worker.kill()
            raise FunctionFailed(RpcException(message=what)) from None

    async def close(self) -> None:
        """End them all, with what still runs in them."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        workers = [worker for worker in self._workers if worker]
        if any(worker.is_busy for worker in workers):
            _log.warning("a function did not end in time and was cut off")
        await asyncio.gather(*(worker.end() for worker in workers))

    async def _next(self) -> _WorkerProcess:
        """The next one in turn that is there; waits while none is."""
        async with self._changed:
            await self._changed.wait_for(lambda: any(map(_is_there, self._workers)))
        while not _is_there(worker := self._workers[next(self._turns)]):
            pass
        return worker

    async def _keep(self, index: int) -> None:
        while True:
            worker = self._workers[index]
            if worker is not None:
                await worker.ended.wait()
                _log.warning("a worker process ended; another one is started")
                self._workers[index] = None
                await worker.end()
            try:
                self._workers[index], _ = await _WorkerProcess.start(self._app)
            except CannotStart as refused:
                _log.error("%s", refused)
                await asyncio.sleep(RESTART_PAUSE_SECONDS)
                continue
            async with self._changed:
                self._changed.notify_all()


def _is_there(worker: _WorkerProcess | None) -> TypeGuard[_WorkerProcess]:
    return worker is not None and worker.takes_calls
