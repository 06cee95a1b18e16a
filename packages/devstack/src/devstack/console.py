"""What the stack says: whole lines, each marked with the service it comes from, never mixed within a line.

A reader who went away (``make run | head``) stops the stack instead of killing it half-way through a line.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from typing import TextIO

COLOURS = {"devstack": "1", "cosmos": "36", "servicebus": "35", "functions": "32"}
WIDTH = max(map(len, COLOURS))


def _nothing() -> None:
    """Nobody wants to know."""


class Console:
    """Writes to ``stream``; colours only for a terminal, and not when NO_COLOR is set (https://no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self._on_closed: Callable[[], None] = _nothing
        self._stream = stream
        self._colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def watch(self, on_closed: Callable[[], None]) -> None:
        """Call ``on_closed`` as soon as nobody reads any more, not only at the next line; from a running loop."""
        self._on_closed = on_closed
        descriptor, loop = self._stream.fileno(), asyncio.get_running_loop()
        if stat.S_ISFIFO(
            os.fstat(descriptor).st_mode
        ):  # the writing end is "readable" once the reader is gone

            def closed() -> None:
                loop.remove_reader(descriptor)
                self._on_closed()

            loop.add_reader(descriptor, closed)

    def line(self, source: str, text: str) -> None:
        """One line of ``source``'s log."""
        mark = f"{source:<{WIDTH}} |"
        if self._colour:
            mark = f"\x1b[{COLOURS.get(source, '0')}m{mark}\x1b[0m"
        self.plain(f"{mark} {text}")

    def plain(self, text: str) -> None:
        """Text as it is, for people to read or paste."""
        try:
            print(text, file=self._stream, flush=True)
        except BrokenPipeError:
            # What is still in the buffer would fail once more when the interpreter ends: let it go to the null device.
            with open(os.devnull, "w") as null:  # noqa: PTH123 - a device, not a path
                os.dup2(null.fileno(), self._stream.fileno())
            self._on_closed()
