"""A command that lacks a package ends with one line that names the package and says what to run.

Each command calls :func:`require` before the imports that need packages, and only when it is run as a command. This
module imports only the standard library: the module must work where nothing is installed.
"""

import sys
from pathlib import Path

from cosmos_outbox.settings.errors import CORE, EXTRAS, missing

EXIT_CODE = 2
"""The command could not start; the same code as for a missing setting."""

_RUN_TIME = {
    **CORE, **EXTRAS["functions"], **EXTRAS["servicebus"], **EXTRAS["telemetry"],
    **EXTRAS["storagequeue"],
    "email_validator": "email-validator",
}  # fmt: skip

REQUIRED = {
    "requirements.txt": _RUN_TIME,
    "requirements-dev.txt": _RUN_TIME | {"devstack": "devstack", "sqlglot": "sqlglot", "pytest": "pytest"},
}
"""The modules that a command of the checkout needs: those of the app the first file, tools and tests the second."""

_CHECKOUT = Path(__file__).parents[2]
"""Where the package stands as a folder beside an app, the app's requirements files are there."""


def require(command: str, requirements: str = "requirements-dev.txt") -> None:
    """End the process with one line when a package of ``requirements`` is missing."""
    _end_without(
        command,
        REQUIRED[requirements],
        f"make venv and use .venv/bin/python, or run {sys.executable} -m pip install -r {requirements}",
    )


def require_extra(command: str, extra: str | None) -> None:
    """End the process with one line when a package is missing that the library needs with this extra."""
    if (_CHECKOUT / "requirements.txt").exists():
        require(command, "requirements.txt")
        return
    wanted, modules = ("", CORE) if extra is None else (f"[{extra}]", CORE | EXTRAS[extra])
    _end_without(command, modules, f"{sys.executable} -m pip install 'cosmos-outbox{wanted}'")


def _end_without(command: str, modules: dict[str, str], remedy: str) -> None:
    if absent := ", ".join(missing(modules)):
        print(f"{command}: {sys.executable} does not have {absent}. Run {remedy}", file=sys.stderr)
        sys.exit(EXIT_CODE)
