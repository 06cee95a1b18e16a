"""Keeps a simulation from anything real: opening a socket, a file, a thread or a process raises, and ends the run.

An audit hook of Python checks it, so no way around it is left open, C code included. The hook checks only while
a simulation runs, and only the thread that runs it. Modules may be imported late, and sources read for a traceback.
"""

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

_FORBIDDEN = {
    "socket.__new__": "a socket",
    "socket.getaddrinfo": "a look-up of a host name",
    "subprocess.Popen": "a process",
    "os.system": "a process",
    "os.fork": "a process",
    "os.posix_spawn": "a process",
    "_thread.start_new_thread": "a thread",
    "_thread.start_joinable_thread": "a thread",
    "open": "a file",
    "sqlite3.connect": "a database file",
}
_MAY_READ = ("<frozen importlib", "linecache.py", "tokenize.py", "zipimport")
"""Files whose code may read other code, which changes nothing."""
_OURS = ("/engine/guard.py",)


class ReachedOut(BaseException):
    """The simulated code opened something real. No ``except Exception`` of that code can suppress it."""


class Guard:
    """Records the forbidden resources that a run opened."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def check(self) -> None:
        """Raises ReachedOut if something was opened and a task of asyncio has suppressed the error."""
        if self.found:
            raise ReachedOut("; ".join(self.found))

    def look(self, event: str, arguments: tuple[object, ...]) -> None:
        """Checks an audit event. Raises ReachedOut."""
        what = _FORBIDDEN.get(event)
        if what is None or _allowed(event, arguments):
            return
        self.found.append(f"{what} was opened in a simulation: {_line(sys._getframe())}")  # noqa: SLF001
        raise ReachedOut(self.found[-1])


_guarded: dict[int, Guard] = {}
"""The guards, by the thread that simulates."""


@contextmanager
def guarded() -> Iterator[Guard]:
    """Forbids real resources inside. Raises ReachedOut, at the end too if it was suppressed."""
    _install()
    guard, thread = Guard(), threading.get_ident()
    before = _guarded.get(thread)
    _guarded[thread] = guard
    try:
        yield guard
    finally:
        if before is None:
            del _guarded[thread]
        else:
            _guarded[thread] = before
    guard.check()


@contextmanager
def unguarded() -> Iterator[None]:
    """Allows what the simulation itself must open, before the code under test begins."""
    thread = threading.get_ident()
    guard = _guarded.pop(thread, None)
    try:
        yield
    finally:
        if guard is not None:
            _guarded[thread] = guard


@functools.cache
def _install() -> None:
    """Installs the hook once in a process: it cannot be removed."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if _guarded and event in _FORBIDDEN and (guard := _guarded.get(threading.get_ident())):
            guard.look(event, arguments)

    sys.addaudithook(hook)
    if sys.version_info >= (3, 12):
        return  # which reports threads to the hook, too
    start = threading._start_new_thread  # type: ignore[attr-defined]  # noqa: SLF001

    def start_new_thread(*arguments: Any, **options: Any) -> Any:
        hook("_thread.start_new_thread", arguments)
        return start(*arguments, **options)

    threading._start_new_thread = start_new_thread  # type: ignore[attr-defined]  # noqa: SLF001


def _allowed(event: str, arguments: tuple[object, ...]) -> bool:
    if event == "sqlite3.connect":
        return arguments[0] == ":memory:"
    return event == "open" and _reads_code(arguments) and _has(sys._getframe(), _MAY_READ)  # noqa: SLF001


def _reads_code(arguments: tuple[object, ...]) -> bool:
    """Whether it reads code, or writes an import's cache, Python's and pytest's."""
    path, mode = arguments[0], arguments[1] if len(arguments) > 1 else None
    writes = mode is not None and bool(set(str(mode)) & set("wax+"))
    return not writes or isinstance(path, int) or "__pycache__" in Path(str(path)).parts


def _has(frame: FrameType | None, names: tuple[str, ...]) -> bool:
    while frame is not None:
        if any(name in frame.f_code.co_filename for name in names):
            return True
        frame = frame.f_back
    return False


def _line(frame: FrameType | None) -> str:
    """Returns the innermost line outside libraries, and the innermost at all."""
    lines: list[str] = []
    ours: str | None = None
    libraries = tuple(str(Path(module).parent) for module in (threading.__file__,))
    while frame is not None:
        name = frame.f_code.co_filename
        line = f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
        if not name.endswith(_OURS):
            lines.append(line)
            if ours is None and not name.startswith(("<", *libraries)) and "site-packages" not in name:
                ours = line
        frame = frame.f_back
    return ours if ours is not None and ours == lines[0] else f"{lines[0]}, for {ours}"
