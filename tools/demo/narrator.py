"""Prints the story for people, and counts for a machine whether each promise in it held."""

import json
import textwrap
from typing import Any, TextIO

WIDTH = 100


class Narrator:
    """Prints on ``stream``, and counts the promises that held and those that did not."""

    def __init__(self, stream: TextIO) -> None:
        self.kept: list[str] = []
        self.broken: list[str] = []
        self._stream = stream
        self._colour = stream.isatty()
        self._steps = 0

    def step(self, title: str, text: str) -> None:
        """Begins the next part of the story."""
        self._steps += 1
        self._print("")
        self._print(self._style("1", f"{self._steps}. {title}"))
        self.say(text)

    def say(self, text: str) -> None:
        """Prints a paragraph."""
        for line in textwrap.wrap(" ".join(text.split()), WIDTH):
            self._print(line)

    def show(self, label: str, content: Any = None) -> None:
        """Prints a document or message as it was sent or stored."""
        self._print(f"   {self._style('36', label)}")
        if content is not None:
            text = json.dumps(content, ensure_ascii=False)
            self._print(textwrap.fill(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 7))

    def check(self, promise: str, held: object) -> None:
        """Prints and counts whether ``promise`` held."""
        (self.kept if held else self.broken).append(promise)
        mark = self._style("32", "ok    ") if held else self._style("31", "BROKEN")
        self._print(f"   {mark} {promise}")

    def conclude(self) -> None:
        """Prints the last line: how many promises held."""
        total = len(self.kept) + len(self.broken)
        self._print("")
        for promise in self.broken:
            self._print(f"   {self._style('31', 'BROKEN')} {promise}")
        self._print(f"{len(self.kept)} of {total} promises held.")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _style(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text
