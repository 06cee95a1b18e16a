"""A command that lacks a package ends with one line that names the package and says what to run.

Each command calls :func:`require` before the imports that need packages, and only when it is run as a command. This
module imports only the standard library: the module must work where nothing is installed.
"""

import sys
from importlib.util import find_spec

EXIT_CODE = 2
"""The command could not start; the same code as for a missing setting."""

_RUN_TIME = {
    "azure.functions": "azure-functions",
    "azure.cosmos": "azure-cosmos",
    "azure.servicebus": "azure-servicebus",
    "azure.identity": "azure-identity",
    "aiohttp": "aiohttp",
    "certifi": "certifi",
    "pydantic": "pydantic",
    "cryptography": "cryptography",
    "rfc8785": "rfc8785",
    "email_validator": "email-validator",
    "opentelemetry.metrics": "opentelemetry-api",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "azure.monitor.opentelemetry.exporter": "azure-monitor-opentelemetry-exporter",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}
"""Modules, each with the package that contains it."""

REQUIRED = {
    "requirements.txt": _RUN_TIME,
    "requirements-dev.txt": _RUN_TIME | {"devstack": "devstack", "sqlglot": "sqlglot", "pytest": "pytest"},
}
"""The modules that a command needs: the deployed commands need the first file, tools and tests the second."""


def require(command: str, requirements: str = "requirements.txt") -> None:
    """End the process with one line when a package of ``requirements`` is missing."""
    missing = [package for module, package in REQUIRED[requirements].items() if not _is_there(module)]
    if missing:
        print(
            f"{command}: {sys.executable} does not have {', '.join(missing)}. Run make venv and use .venv/bin/python, "
            f"or run {sys.executable} -m pip install -r {requirements}",
            file=sys.stderr,
        )
        sys.exit(EXIT_CODE)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False
