"""A process that forks for each request: what it has imported, its children have.

When nobody can make requests any more, it ends.
"""

import atexit
import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_LONGEST_REQUEST = 1 << 20
_MOST_DESCRIPTORS = 4


class Forking:
    """Forks for each request, and reports how each of its children has ended."""

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

    def serve(self) -> tuple[Any, list[int]] | None:
        """Returns in each child, with what was asked and the descriptors that came with it; at the end None."""
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._woken in ready:
                self._woken.recv(4096)
                self._collect()
            if self._requests in ready:
                data, given, _, _ = socket.recv_fds(self._requests, _LONGEST_REQUEST, _MOST_DESCRIPTORS)
                if not data:
                    return None
                pid = os.fork()
                waiter = socket.socket(fileno=given.pop())
                if pid == 0:
                    self._become(waiter)
                    return json.loads(data), given
                for each in given:
                    os.close(each)
                self._children[pid] = waiter

    def _collect(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with contextlib.suppress(OSError), self._children.pop(pid) as waiter:  # nobody listens any more
                waiter.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _become(self, waiter: socket.socket) -> None:
        """A child knows nothing of the requests, nor of those before it."""
        atexit._clear()  # noqa: SLF001 - the parent's
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for ours in (self._requests, self._wake, self._woken, *self._children.values()):
            ours.close()
        with waiter:
            waiter.send(str(os.getpid()).encode())


class Ahead:
    """What was imported for the apps and commands of the tests, which may bring another version of it."""

    def __init__(self, modules: Sequence[str]) -> None:
        for module in modules:
            importlib.import_module(module)
        here = Path.cwd()
        self._packages = {
            name: Path(module.__path__[0])
            for name, module in sys.modules.items()
            if "." not in name and getattr(module, "__path__", None)
            if Path(module.__path__[0]).parent == here
        }
        """Of the folder that the tests run in."""

    def forget_what_is_in(self, folders: Sequence[Path]) -> None:
        """A package that one of these folders has itself is imported from there."""
        for name, place in self._packages.items():
            found = [folder / name for folder in folders if (folder / name).is_dir()]
            if found and not found[0].samefile(place):
                for module in [each for each in sys.modules if f"{each}.".startswith(f"{name}.")]:
                    del sys.modules[module]


def folders_of(environment: Mapping[str, str]) -> list[Path]:
    """Those in which the environment lets Python look first."""
    return [Path(each) for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


def end_with(work: Callable[[], object]) -> NoReturn:
    """Do a child's work, and end as an interpreter does: after its threads and its own exit handlers."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        code = 0 if ended.code is None else ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody catches
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as the interpreter calls it
        atexit._run_exitfuncs()  # noqa: SLF001 - the same
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
