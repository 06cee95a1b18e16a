"""Keeps loops alive and their logs short: failures of users' functions, log lines once a minute, work in slices.

A user's function may await a task that was cancelled elsewhere, or call ``sys.exit()``. Its ``CancelledError``, which
``except Exception`` does not catch, would silently end a loop; its ``SystemExit`` would end the process at each
delivery of the message.
"""

import asyncio
import linecache
import sysconfig
import traceback
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass

T = TypeVar("T")

REPEAT_SECONDS = 60.0
SLICE = 50
"""About a millisecond's work, for items of some ten microseconds each."""


@dataclass
class LogThrottle:
    """Decides when a condition that goes on is logged again: once a minute, not at each attempt."""

    _said_at: float = field(default=float("-inf"), repr=False)

    def due(self) -> bool:
        """Returns True at the first call, then at the first one a minute or more later."""
        now = monotonic()
        if now - self._said_at < REPEAT_SECONDS:
            return False
        self._said_at = now
        return True

    def reset(self) -> None:
        """Note that the condition is over: the next one is logged at once."""
        self._said_at = float("-inf")


async def pace(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yield the items in slices; between two, other tasks send a page or renew a lease."""
    rest = iter(items)
    while some := list(islice(rest, SLICE)):
        yield some
        await asyncio.sleep(0)


class CallEnded(Exception):
    """A call raised a BaseException that is no ``Exception``, although its task was not cancelled."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(
            f"{type(raised).__name__} was raised, and nobody had cancelled the call: catch it where it comes from"
        )


@contextmanager
def own_failures() -> Iterator[None]:
    """Wrap one call. A cancellation of the task itself passes; what else is raised becomes an Exception.

    Raises CallEnded instead of the call's own CancelledError, SystemExit, KeyboardInterrupt and groups of them.
    """
    try:
        yield
    except Exception:  # an ExceptionGroup too
        raise
    except (asyncio.CancelledError, SystemExit, KeyboardInterrupt, BaseExceptionGroup) as raised:
        task = asyncio.current_task()
        if isinstance(raised, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        raise CallEnded(raised) from raised


_LIBRARIES = (
    str(Path(__file__).parents[1]),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("platstdlib"),
    "<",
)
"""How the names of the files of this library and of Python begin; code that was made at run time has no file."""


def cause_of(error: Exception) -> str:
    """Returns the error's type, with the innermost line of the user's own code, or of any where there is none.

    The error's text is left out: it may quote the data that the code failed on, which is personal. So this is the same
    for every aggregate that a bug affects.
    """
    # Python has no line for some instructions of its own: then line is None.
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(code, line) for code, line in frames if not _is_of_a_library(code.co_filename)]
    for code, line in (own or frames)[-1:]:
        file, written = Path(code.co_filename), linecache.getline(code.co_filename, line or 0).strip()
        where = f"{type(error).__name__} in {code.co_name} ({file.parent.name}/{file.name}:{line})"
        return f"{where}: {written}" if written else where
    return type(error).__name__


def _is_of_a_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or "site-packages" in Path(file).parts
