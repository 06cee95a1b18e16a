"""Of all hosts that share a data folder, one at a time holds a name, and lets go of it however it ends.

In Azure this is a lease on a blob, named for the function. Here it is a lock on a file, which the system takes from a
process that dies. Unlike a lease, it is not lost by a process that is only paused.
"""

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TextIO

POLL_SECONDS = 0.5
"""Azure looks once a minute."""


@contextlib.asynccontextmanager
async def held(data: Path, function: str) -> AsyncIterator[None]:
    """Wait until no other host holds the function's name, and hold it."""
    with _opened(data / "lock") as folder, _opened(data / f"{function}.lock") as file:
        # With the others, so that ``devstack clean`` sees that the folder is in use.
        fcntl.flock(folder, fcntl.LOCK_SH)
        while not _taken(file.fileno()):  # noqa: ASYNC110 - only the system knows when another process lets go
            await asyncio.sleep(POLL_SECONDS)
        yield


def _opened(file: Path) -> TextIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.open("a")


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
