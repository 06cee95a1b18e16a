"""A child process never outlives this one: it has our pipe as its standard input, and ends when that closes.

It runs in a session of its own, so Ctrl-C in the terminal reaches only its parent, which decides the order of
stopping. What it writes is passed on line by line; the last line of a child that could not start is the reason.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from devstack.console import Console
from devstack.service import CannotStart

READY_WITHIN_SECONDS = 30.0
USERS_MISTAKE = 2
"""The exit code that :func:`devstack.service.run` gives a :class:`CannotStart`."""
LONGEST_LINE = 64 * 1024
"""In bytes: a longer line is passed on in pieces."""


class EndedEarly(CannotStart):
    """The process ended before it was ready, and gave no reason to mend: it may work next time."""


class Child:
    """One process that keeps the contract of :mod:`devstack.service`."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], console: Console
    ) -> None:
        self.name = name
        self._command = command
        # Without this, what the app prints would sit in a buffer until the host ends.
        self._environment = {**environment, "PYTHONUNBUFFERED": "1"}
        self._console = console
        self._process: Process | None = None
        self._relays: list[asyncio.Task[None]] = []
        self._ready: asyncio.Future[list[str]] | None = None
        self._last_line: str | None = None

    async def start(self) -> list[str]:
        """Start it and wait for its READY line; the addresses on it.

        Raises :class:`CannotStart` with the reason it gave, or when it says nothing for 30 s, and
        :class:`EndedEarly` when it crashed; then no process is left.
        """
        self._ready = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._relays = [
            asyncio.create_task(self._pass_on(self._process.stdout)),
            asyncio.create_task(self._pass_on(self._process.stderr)),
        ]
        try:
            return await self._wait_until_ready(self._ready)
        except BaseException:
            await self.stop(0)
            raise

    async def ended(self) -> str:
        """Wait until the process has ended; how it did, for people."""
        assert self._process is not None, "the child was never started"
        code = await self._process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def stop(self, grace: float) -> None:
        """SIGTERM, and after ``grace`` seconds SIGKILL for whatever is left of it and of what it started."""
        if self._process is None:
            return
        if grace > 0 and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
        await self._sweep()

    def kill(self) -> None:
        """SIGKILL to the process and what it started, without waiting."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _sweep(self) -> None:
        assert self._process is not None
        self.kill()
        await self._process.wait()
        if self._relays:
            await asyncio.wait(self._relays, timeout=1)
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def _wait_until_ready(self, ready: asyncio.Future[list[str]]) -> list[str]:
        assert self._process is not None
        ending = asyncio.create_task(self.ended())
        try:
            either: list[asyncio.Future[Any]] = [ready, ending]
            await asyncio.wait(either, timeout=READY_WITHIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return ready.result()
            if not ending.done():
                self._say_last_line()
                raise CannotStart(f"{self.name} was not ready within {READY_WITHIN_SECONDS:.0f} s")
            await asyncio.wait(self._relays, timeout=1)
            if self._process.returncode == USERS_MISTAKE and self._last_line:
                raise CannotStart(self._last_line)
            self._say_last_line()
            raise EndedEarly(f"{self.name} {ending.result()} before it was ready")
        finally:
            ending.cancel()

    async def _pass_on(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            self._take(line)

    def _take(self, line: str) -> None:
        assert self._ready is not None
        if self._ready.done():
            self._console.line(self.name, line)
        elif line.startswith("READY "):
            self._say_last_line()  # before a line that follows it is passed on
            self._ready.set_result(line.split()[1:])
        else:
            # Held back until the next one: the last line of a child that cannot start is its reason.
            self._say_last_line()
            self._last_line = line

    def _say_last_line(self) -> None:
        if self._last_line is not None:
            self._console.line(self.name, self._last_line)
            self._last_line = None


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of ``stream``; unlike ``readline``, one of any length does no harm."""
    rest = b""
    while chunk := await stream.read(LONGEST_LINE):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
        if len(rest) > LONGEST_LINE:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode(errors="replace")
