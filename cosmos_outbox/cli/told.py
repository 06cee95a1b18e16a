"""A command works for the service that it is told: by its call, by the environment, or by the project it stands in."""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.wiring.located import AnyService, located
from cosmos_outbox.wiring.service import Service

SETTING = "OUTBOX_SERVICE"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Let a command be told its service: ``--service MODULE``."""
    parser.add_argument(
        "--service",
        metavar="MODULE",
        help="the module that declares the service, such as bookings.service (default: the setting "
        f"{SETTING}, else service in [tool.cosmos-outbox] of the pyproject.toml in this folder)",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Let a command be told the service's settings: ``--settings FILE``."""
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="the app's settings, a file like local.settings.json; a variable of the environment beats the file",
    )


def settings(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The settings that the command is told. Raises Misconfigured."""
    return {**(_values(arguments.settings) if arguments.settings else {}), **environment}


def service(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Service:
    """The service that the command is told, which publishes events. Raises Misconfigured."""
    found = any_service(arguments, environment)
    if not isinstance(found, Service):
        raise Misconfigured(
            f"{found.name} only subscribes, and this command is about events that a service publishes: name such a "
            "service with --service, or ask the team that publishes"
        )
    return found


def any_service(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> AnyService:
    """The service that the command is told, also one that only subscribes. Raises Misconfigured."""
    name = arguments.service or environment.get(SETTING) or _of_the_project(Path("pyproject.toml"))
    if not name:
        raise Misconfigured(
            f"no service is named: add --service MODULE, set {SETTING}, or run the command in the folder whose "
            "pyproject.toml names one"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:  # an installed command does not look there by itself
        sys.path.insert(0, folder)
    return located(name)


def _of_the_project(file: Path) -> str | None:
    try:
        named = tomllib.loads(file.read_text()).get("tool", {}).get("cosmos-outbox", {}).get("service")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot read {file}: {error}") from error
    return named if isinstance(named, str) else None


def _values(file: Path) -> Mapping[str, str]:
    """The values of a settings file. Raises Misconfigured."""
    try:
        content = json.loads(file.read_bytes())
        encrypted, values = content.get("IsEncrypted", False), content["Values"]
    except OSError as error:
        raise Misconfigured(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise Misconfigured(
            f'{file} is not a settings file: it must be a JSON object with "Values", like local.settings.sample.json'
        ) from error
    if encrypted:
        raise Misconfigured(
            f"{file} is encrypted: run func settings decrypt, or set the values in the environment"
        )
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise Misconfigured(f'the "Values" in {file} must be an object of strings')
    return values
