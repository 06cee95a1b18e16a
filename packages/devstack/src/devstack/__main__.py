"""``devstack [cosmos|servicebus|storage|functions|clean] ...``: one service alone, or without a name all of them."""

import importlib
import sys

COMMANDS = {
    "cosmos": "devstack.cosmos.cli",
    "servicebus": "devstack.servicebus.cli",
    "storage": "devstack.storage.cli",
    "functions": "devstack.functions.cli",
    "clean": "devstack.clean",
}


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names; the exit code."""
    if arguments and arguments[0] in COMMANDS:
        return int(importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:]))
    from devstack import supervisor  # noqa: PLC0415 - a service alone starts without the supervisor's imports

    return supervisor.main(arguments)


def run() -> None:
    """The ``devstack`` command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
