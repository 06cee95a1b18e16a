"""What the stack says: whole lines, each marked with the service it comes from, never mixed within a line.

A reader who went away (``make run | head``) stops the stack instead of killing it half-way through a line.
"""

import os
from collections.abc import Callable
from typing import TextIO

COLOURS = {"devstack": "1", "cosmos": "36", "servicebus": "35", "functions": "32"}
WIDTH = max(map(len, COLOURS))


def _nothing() -> None:
    """Nobody wants to know."""


class Console:
    """Writes to ``stream``; colours only for a terminal, and not when NO_COLOR is set (https://no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self.on_closed: Callable[[], None] = _nothing
        self._stream = stream
        self._colour = stream.isatty() and not os.environ.get("NO_COLOR")

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
            # What is still in the buffer would fail once more when the interpreter ends: let it go nowhere.
            with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device, not a path
                os.dup2(nowhere.fileno(), self._stream.fileno())
            self.on_closed()
