"""The warm process of :mod:`devstack.testing.warm`: it has imported the services, and forks one for each request.

A request has the arguments, the environment and the folder of a service, its three streams, and a socket that is told
the service's process id, and at its end the exit code. When nobody can make requests any more, the process ends; the
services see the end of their standard input by themselves.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Sequence

from devstack.__main__ import COMMANDS, main

MODULES = (
    *(module for name, module in COMMANDS.items() if name != "clean"),
    "azure.cosmos.aio",
    "azure.functions",
    "azure.identity.aio",
    "azure.servicebus.aio",
    "pydantic",
)
"""What the services import, and what most apps do."""

_LONGEST_REQUEST = 1 << 20
_STREAMS = 3


class _Server:
    """The warm process: forks for each request, and tells how each of its children has ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[int, socket.socket] = {}
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> list[str] | None:
        """Returns twice for each request: in the child, with the arguments of its service; at the end None."""
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._woken in ready:
                self._woken.recv(4096)
                self._collect()
            if self._requests in ready:
                data, streams, _, _ = socket.recv_fds(self._requests, _LONGEST_REQUEST, _STREAMS + 1)
                if not data:
                    return None
                pid = os.fork()
                if pid == 0:
                    return self._become(data, streams)
                for each in streams[:_STREAMS]:
                    os.close(each)
                self._children[pid] = socket.socket(fileno=streams[_STREAMS])

    def _collect(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with contextlib.suppress(OSError), self._children.pop(pid) as tell:  # nobody listens any more
                tell.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _become(self, data: bytes, streams: Sequence[int]) -> list[str]:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for ours in (self._requests, self._wake, self._woken, *self._children.values()):
            ours.close()
        for number, each in enumerate(streams[:_STREAMS]):
            os.dup2(each, number)
        with socket.socket(fileno=streams[_STREAMS]) as tell:
            tell.send(str(os.getpid()).encode())
        for each in streams[:_STREAMS]:
            os.close(each)
        arguments, environment, folder = json.loads(data)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv[1:] = arguments
        added = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
        sys.path[1:1] = [each for each in added if each not in sys.path]
        return list(arguments)


def _serve(descriptor: int) -> None:
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()  # what is loaded is shared with all children: no collection may touch it
    arguments = _Server(socket.socket(fileno=descriptor)).serve()
    if arguments is None:
        return
    code = 1
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody catches
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
