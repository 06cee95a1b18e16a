"""Converts a CancelledError or SystemExit of a user's function into an ordinary error of that call.

Such a function may await a task that was cancelled elsewhere, or call ``sys.exit()``. Its ``CancelledError``, which
``except Exception`` does not catch, would silently end a loop; its ``SystemExit`` would end the process at each
delivery of the message.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


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
