"""A command works for the service that it is told, and for the contact service unless it is told one."""

import argparse
import importlib
from types import ModuleType

from infra.errors import Misconfigured

DEFAULT = "infra.bootstrap"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Let a command be told its service: ``--service MODULE``."""
    parser.add_argument(
        "--service",
        default=DEFAULT,
        metavar="MODULE",
        help="the service's composition root, such as examples.orders.bootstrap (default: %(default)s)",
    )


def composition_root(module: str) -> ModuleType:
    """The module that was named. Raises Misconfigured."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise Misconfigured(
            f"--service {module}: there is no module {error.name}. Name the service's composition root with dots, such "
            "as examples.orders.bootstrap, and run the command in the folder above"
        ) from error
