"""One devstack service is one process: it says when it can be used, stops when asked, and never outlives its parent.

The contract that the supervisor and the tests rely on:

* standard output carries one line, ``READY <address> ...``, written once connections are accepted; logs go to standard
  error;
* SIGTERM or SIGINT ends the process with exit code 0;
* with ``watch_stdin`` the end of standard input ends it too, so a supervisor that was killed leaves no orphan;
* a user's mistake (:class:`CannotStart`) is one line on standard error and exit code 2, never a traceback.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path


class CannotStart(Exception):
    """The service cannot start and the user can mend it; the message is one line that says how."""


def default_data(service: str) -> Path:
    """Where a service that is started by hand keeps its data."""
    return Path(os.environ.get("DEVSTACK_DATA") or ".devstack") / service


Serve = Callable[[], AbstractAsyncContextManager[str]]
"""Makes a context that accepts connections while it is open; it yields the addresses to print, separated by spaces."""


def run(serve: Serve, *, watch_stdin: bool = False) -> int:
    """Serve until asked to stop. Returns the process's exit code."""
    try:
        asyncio.run(_serve_until_asked_to_stop(serve, watch_stdin=watch_stdin))
    except CannotStart as problem:
        print(problem, file=sys.stderr, flush=True)
        return 2
    return 0


async def _serve_until_asked_to_stop(serve: Serve, *, watch_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve() as address, _stop_at_end_of_stdin(stop, enabled=watch_stdin):
        print(f"READY {address}", flush=True)
        await stop.wait()


@contextlib.asynccontextmanager
async def _stop_at_end_of_stdin(stop: asyncio.Event, *, enabled: bool) -> AsyncIterator[None]:
    if not enabled:
        yield
        return
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            stop.set()

    loop.add_reader(descriptor, readable)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)


@contextlib.contextmanager
def port_errors(service: str, port: int, setting: str) -> Iterator[None]:
    """Turn a failed bind into one line that names the setting to change."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"{service}: port {port} is taken; stop what uses it, or set {setting} to a free port"
            ) from error
        raise CannotStart(f"{service}: cannot listen on port {port}: {error.strerror}") from error


@contextlib.contextmanager
def locked_folder(service: str, folder: Path) -> Iterator[Path]:
    """Make ``folder`` and hold it for this process alone: two servers on one SQLite file would lie to both clients."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / "lock").open("a+")
    except OSError as error:
        raise CannotStart(
            f"{service}: cannot use the data folder {folder}: {error.strerror}; set DEVSTACK_DATA to another folder"
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CannotStart(
                f"{service}: the data folder {folder} is in use by another process; "
                "stop it, or set DEVSTACK_DATA to another folder"
            ) from error
        yield folder
