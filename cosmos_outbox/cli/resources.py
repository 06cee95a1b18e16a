"""Write what a service needs in Azure to a file that Bicep reads: containers with indexes, subscriptions, functions.

cosmos-outbox resources deploy/service.json
"""

import importlib
import json
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cosmos_outbox.cli import command
from cosmos_outbox.cli.schemas import write
from cosmos_outbox.preflight.resources import resources
from cosmos_outbox.service import Service

_OF_BOTH = {"get_problem", "health", "unrouted"}
"""The functions that callers and operators need alike."""


def derive(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the service in the module ``name`` needs, for devstack. Raises Misconfigured."""
    return resources(command.load_service(name), environment)


def deployed(service: Service, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns it with the functions of the app in this folder: which answer callers, and which work."""
    functions = (
        importlib.import_module("function_app").app.get_functions() if find_spec("function_app") else []
    )
    split: dict[str, list[str]] = {"callers": [], "workers": [], "triggered": []}
    for each in functions:
        trigger = each.get_trigger().get_dict_repr()
        name, kind = each.get_function_name(), trigger["type"]
        is_call = kind == "httpTrigger" and trigger["authLevel"].value != "admin"
        is_call = is_call and trigger.get("route") != "operations"
        if name not in _OF_BOTH:
            split["callers" if is_call else "workers"].append(name)
        if kind not in ("httpTrigger", "timerTrigger"):
            split["triggered"].append(name)
    found = resources(service, environment)
    return {**found, "functions": {kind: sorted(names) for kind, names in split.items()}}


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Write the file, and return the exit code."""
    parser = command.parser(
        "resources",
        "Write the containers, subscriptions and functions of the service to a file, for deploy/main.bicep.",
        "written",
        "not written",
        "the service cannot be loaded",
    )
    parser.add_argument("file", type=Path, help="such as deploy/service.json; commit it")
    return command.ended(parser, _write(parser.parse_args(argv), environment))


async def _write(arguments: Namespace, environment: Mapping[str, str]) -> int:
    service, values = command.named(arguments, environment)
    file: Path = arguments.file
    write(file.parent, {file.name: json.dumps(deployed(service, values), indent=2) + "\n"})
    return command.DONE
