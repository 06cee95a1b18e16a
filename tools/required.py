"""Ends a command of the checkout with one line when a package of requirements-dev.txt is missing."""

from cosmos_outbox.cli import main

_OF_TOOLS = {"devstack": "devstack", "sqlglot": "sqlglot", "pytest": "pytest"}


def require(command: str) -> None:
    """Return if all is installed. It imports nothing but the standard library before it knows."""
    modules = main.RUN_TIME | _OF_TOOLS
    main.require(command, modules, "make venv and use .venv/bin/python, or run ", "-r requirements-dev.txt")
