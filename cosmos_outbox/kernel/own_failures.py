"""Turns what ends a task or the process into an error of the one call that raised it.

A function of the user's may await what somebody else has cancelled, or call ``sys.exit()``. Its ``CancelledError``,
which ``except Exception`` does not see, would end a loop in silence; its ``SystemExit`` would end the process, each
time when the message comes again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class CallEnded(Exception):
    """A call raised what is no ``Exception``, although nobody has cancelled its task."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(
            f"{type(raised).__name__} was raised, and nobody had cancelled the call: catch it where it comes from"
        )


@contextmanager
def own_failures() -> Iterator[None]:
    """Around one call. A cancellation of the task itself passes; everything else that is raised is an Exception.

    Raises CallEnded in the place of a CancelledError of the call's own, SystemExit, KeyboardInterrupt and their groups.
    """
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except BaseException as raised:
        task = asyncio.current_task()
        if isinstance(raised, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise
        raise CallEnded(raised) from raised
