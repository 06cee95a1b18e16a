"""Reads the YAML that our own files are written in, and refuses any other: two spaces a level, no tabs, no anchors, no
key twice. A file that passes here means the same to every parser of YAML.
"""

import json
import re
from pathlib import Path
from typing import Any

_KEY = re.compile(r"([\w./-]+):(?: (.*))?")


class NotOurs(Exception):
    """A line that is not in the subset."""


def read(file: Path) -> Any:
    """The document. Raises NotOurs, naming the line."""
    lines = _Lines(file.read_text().splitlines())
    document = _block(lines, 0)
    if lines.peek() is not None:
        raise NotOurs(f"line {lines.number}: its indentation fits nothing")
    return document


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.number = 1

    def peek(self) -> tuple[int, str] | None:
        """Indentation and text of the next line that says something."""
        while self.number <= len(self._lines):
            line = self._lines[self.number - 1]
            text = line.strip()
            if text and not text.startswith("#"):
                indent = len(line) - len(line.lstrip(" "))
                if indent % 2 or "\t" in line:
                    raise NotOurs(f"line {self.number}: indent by two spaces")
                return indent, text
            self.number += 1
        return None

    def become(self, line: str) -> None:
        self._lines[self.number - 1] = line

    def take_literal(self, indent: int) -> str:
        """The lines of a literal block below ``indent``."""
        taken = []
        while self.number <= len(self._lines):
            line = self._lines[self.number - 1]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            taken.append(line[indent + 2 :])
            self.number += 1
        return "\n".join(taken).strip("\n")


def _block(lines: _Lines, indent: int) -> Any:
    following = lines.peek()
    if following is None or following[0] < indent:
        return None
    return _list(lines, indent) if following[1].startswith("- ") else _mapping(lines, indent)


def _list(lines: _Lines, indent: int) -> list[Any]:
    found = []
    while (
        (following := lines.peek()) is not None and following[0] == indent and following[1].startswith("- ")
    ):
        text = following[1][2:]
        if _KEY.fullmatch(text):
            lines.become(" " * (indent + 2) + text)
            found.append(_mapping(lines, indent + 2))
        else:
            found.append(_scalar(text, lines.number))
            lines.number += 1
    return found


def _mapping(lines: _Lines, indent: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while (following := lines.peek()) is not None and following[0] == indent:
        match = _KEY.fullmatch(following[1])
        if match is None or match[1] in found:
            raise NotOurs(f"line {lines.number}: {following[1]!r} is no key, or is there already")
        lines.number += 1
        text = match[2] or ""
        if text == "|":
            found[match[1]] = lines.take_literal(indent)
        else:
            found[match[1]] = _scalar(text, lines.number - 1) if text else _block(lines, indent + 2)
    return found


def _scalar(text: str, number: int) -> Any:
    if text.startswith(('"', "[", "{")):
        try:
            return json.loads(text)
        except ValueError:
            if match := re.fullmatch(r"\[([\w, .-]*)\]", text):
                return match[1].split(", ")
            raise NotOurs(f"line {number}: {text!r}") from None
    if text[0] in "&*!>%@`'":
        raise NotOurs(f"line {number}: {text!r}")
    return text.partition(" #")[0].strip()
