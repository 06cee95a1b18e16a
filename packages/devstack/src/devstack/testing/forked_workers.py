"""The worker processes of a Functions host under test are forked, as the host was: they have imported most already.

They are of the host's session and group, so that what kills or pauses the host reaches them, and they end with it.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from devstack.functions import worker, workers
from devstack.testing.forking import Ahead, Forking, end_with, folders_of


def begin(ahead: Ahead) -> None:
    """In the host's process, before it has a thread: what forks its workers from now on is a process beside it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        if os.fork() == 0:
            ours.close()
            _fork_workers(theirs, ahead)

    async def begin_worker(app: Path, descriptor: int) -> workers.Begun:
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status.setblocking(False)
        with theirs:
            request = json.dumps([str(app), dict(os.environ)]).encode()
            socket.send_fds(ours, [request], [descriptor, theirs.fileno()])
        return _Worker(int(await asyncio.get_running_loop().sock_recv(status, 64)), status)

    workers.begin = begin_worker


class _Worker:
    """A worker that was forked; what is used of :class:`asyncio.subprocess.Process`."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self._pid = pid
        self._status = status
        self._code: int | None = None

    def kill(self) -> None:
        """Raises ProcessLookupError when it has ended."""
        with contextlib.suppress(BlockingIOError):
            if self._code is not None or self._status.recv(64, socket.MSG_PEEK) is not None:
                raise ProcessLookupError  # its id may be another process's by now
        os.kill(self._pid, signal.SIGKILL)

    async def wait(self) -> int:
        """The exit code."""
        if self._code is None:
            code = await asyncio.get_running_loop().sock_recv(self._status, 64)
            self._code = int(code or -signal.SIGKILL)
            self._status.close()
        return self._code


def _fork_workers(requests: socket.socket, ahead: Ahead) -> NoReturn:
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # standard output belongs to the READY line: what the app prints goes where it logs
    request = Forking(requests).serve()
    if request is None:
        os._exit(0)
    (app, environment), [connection] = request
    os.environ.clear()
    os.environ.update(environment)
    ahead.forget_what_is_in([Path(app), *folders_of(environment)])
    sys.argv[1:] = [str(connection), app]
    end_with(lambda: worker.main(connection, Path(app)))
