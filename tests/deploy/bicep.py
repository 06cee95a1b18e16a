"""Reads Bicep as text, well enough to find what does not fit together; what it cannot read it refuses.

It leans on the way our files are written: a declaration starts in the first column, and its last line is a closing
bracket there. The compiler runs in CI.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_CLOSES = {")": "(", "]": "[", "}": "{"}
_DECLARED = re.compile(r"^(param|var|output|module|resource) (\w+)", re.MULTILINE)
_RESOURCE = re.compile(r"^resource (\w+) '([\w./]+)@([\w-]+)' = ", re.MULTILINE)
_MODULE = re.compile(r"^module (\w+) '([^']+)' = ", re.MULTILINE)


class Broken(Exception):
    """No Bicep that could compile."""


@dataclass(frozen=True)
class Resource:
    """One resource: its type, its API version and the text between its braces."""

    type: str
    api_version: str
    body: str

    def has(self, line: str) -> bool:
        """Whether one of its lines is ``line``."""
        return line in (each.strip() for each in self.body.splitlines())


@dataclass(frozen=True)
class Use:
    """A module as somebody uses it."""

    file: Path
    given: frozenset[str]


@dataclass(frozen=True)
class Bicep:
    """One file without its comments."""

    file: Path
    text: str

    def names(self, kind: str) -> list[str]:
        """What is declared as ``param``, ``var``, ``output``, ``module`` or ``resource``."""
        return [name for declared, name in _DECLARED.findall(self.text) if declared == kind]

    def required(self) -> set[str]:
        """Parameters without a default."""
        return set(re.findall(r"^param (\w+) [\w\[\]]+$", self.text, re.MULTILINE))

    def defaults(self) -> dict[str, str]:
        """Parameters with one, and its expression."""
        return dict(re.findall(r"^param (\w+) \w+ = (.+)$", self.text, re.MULTILINE))

    def resources(self) -> dict[str, Resource]:
        """By their symbolic names."""
        return {
            match[1]: Resource(match[2], match[3], self._body(match.end()))
            for match in _RESOURCE.finditer(self.text)
        }

    def modules(self) -> dict[str, Use]:
        """By their symbolic names."""
        return {
            match[1]: Use(self.file.parent / match[2], _keys(self._body(match.end()), "params"))
            for match in _MODULE.finditer(self.text)
        }

    def objects(self, variable: str) -> dict[str, str]:
        """The properties of ``var variable = {...}`` and their expressions."""
        start = re.search(rf"^var {variable} = ", self.text, re.MULTILINE)
        assert start, f"{self.file.name} has no variable {variable}"
        return dict(re.findall(r"^  ([\w]+): (.+)$", self._body(start.end()), re.MULTILINE))

    def value(self, variable: str) -> str:
        """Of ``var variable = 'value'``."""
        [value] = re.findall(rf"^var {variable} = '([^']*)'$", self.text, re.MULTILINE)
        return str(value)

    def words(self, variable: str) -> list[str]:
        """Of ``var variable = ['one' ...]``."""
        [body] = re.findall(rf"^var {variable} = \[(.*?)\]$", self.text, re.MULTILINE | re.DOTALL)
        return re.findall(r"'(\w+)'", body)

    def _body(self, start: int) -> str:
        return self.text[start : self.text.index("\n}", start)]


def _keys(body: str, block: str) -> frozenset[str]:
    inside = body.partition(f"\n  {block}: {{\n")[2].partition("\n  }")[0]
    return frozenset(re.findall(r"^    (\w+):", inside, re.MULTILINE))


def read(file: Path) -> Bicep:
    """The file. Raises Broken for brackets or strings that do not close."""
    return Bicep(file, without_comments(file.read_text()))


def without_comments(text: str) -> str:
    """The text, checked. Raises Broken."""
    kept: list[str] = []
    open_: list[str] = []
    at = 0
    while at < len(text):
        taken = _in_string(text, at, open_) if open_[-1:] == ["'"] else _outside(text, at, open_)
        if not text.startswith("//", at) or open_[-1:] == ["'"]:
            kept.append(text[at : at + taken])
        at += taken
    if open_:
        raise Broken(f"never closed: {' '.join(open_)}")
    return "".join(kept)


def _in_string(text: str, at: int, open_: list[str]) -> int:
    if text[at] == "\n":
        raise Broken("a string does not end in its line")
    if text[at] == "\\":
        return 2
    if text.startswith("${", at):
        open_.append("{")
        return 2
    if text[at] == "'":
        open_.pop()
    return 1


def _outside(text: str, at: int, open_: list[str]) -> int:
    if text.startswith("//", at):
        return len(text[at:].partition("\n")[0])
    if text[at] in "'([{":
        open_.append(text[at])
    elif text[at] in _CLOSES and (not open_ or open_.pop() != _CLOSES[text[at]]):
        raise Broken(f"{text[at]} closes nothing, at {text[max(0, at - 40) : at]!r}")
    return 1
