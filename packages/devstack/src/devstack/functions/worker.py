"""A worker process runs the app's functions for the host, and does not outlive the host.

It is asked and answers over one socket, in whatever order the functions end. When the socket closes, the process ends
at once, whatever runs in it: there is no shutdown hook in Azure either
(https://github.com/Azure/azure-functions-python-worker/issues/1904).
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from devstack.functions import logs
from devstack.functions.calls import Call, Loaded, NotLoaded, Outcome, framed, read_in_thread
from devstack.functions.indexing import load_functions
from devstack.functions.invocation import FunctionFailed, LocalInvoker
from devstack.service import CannotStart


class _Worker:
    def __init__(self, connection: socket.socket, app: Path) -> None:
        self._connection = connection
        functions = load_functions(app)
        self._invoker = LocalInvoker(str(app), functions)
        self.loaded = Loaded([function.info for function in functions])
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer calls until the host is gone."""
        self._connection.sendall(framed(self.loaded))
        loop = asyncio.get_running_loop()
        # A thread notices at once that the host is gone, whatever a function does to the loop.
        threading.Thread(target=self._read, args=[loop], daemon=True, name="calls").start()
        await asyncio.Event().wait()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        stream = self._connection.makefile("rb")
        try:
            while True:
                loop.call_soon_threadsafe(self._begin, read_in_thread(stream))
        except (EOFError, OSError):
            _end_at_once()

    def _begin(self, call: Call) -> None:
        task = asyncio.create_task(self._answer(call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, call: Call) -> None:
        try:
            returned = await self._invoker.invoke(
                call.function, call.value, trace_context=call.trace_context, retry_context=call.retry_context
            )
        except FunctionFailed as failed:
            outcome = Outcome(call.number, raised=failed.exception)
        else:
            outcome = Outcome(call.number, returned)
        try:
            self._connection.sendall(framed(outcome))
        except OSError:
            _end_at_once()


def _end_at_once() -> None:
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def main(descriptor: int, app: Path) -> None:
    """Serve the host at the other end of the socket ``descriptor``."""
    # Ctrl-C reaches all processes of a terminal; what it means is for the host to say.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logs.configure_worker()
    connection = socket.socket(fileno=descriptor)
    try:
        worker = _Worker(connection, app)
    except CannotStart as refused:
        connection.sendall(framed(NotLoaded(str(refused))))
        return
    asyncio.run(worker.run())


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
