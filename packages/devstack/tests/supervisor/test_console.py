"""Colours are for people at a terminal who want them; a file or a pipe gets plain lines."""

import io

import pytest

from devstack.console import Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _written(stream: io.StringIO) -> str:
    Console(stream).line("cosmos", "text")
    return stream.getvalue()


def test_only_the_mark_is_coloured_and_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert _written(Terminal()) == "\x1b[36mcosmos     |\x1b[0m text\n"
    assert _written(io.StringIO()) == "cosmos     | text\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert _written(Terminal()) == "cosmos     | text\n"
