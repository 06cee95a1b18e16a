"""``python -m devstack [cosmos|servicebus|functions] ...``: one service alone, or without a name all of them."""

import importlib
import sys

SERVICES = ("cosmos", "servicebus", "functions")


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in SERVICES:
        return int(importlib.import_module(f"devstack.{arguments[0]}.cli").main(arguments[1:]))
    from devstack import supervisor  # noqa: PLC0415 - a service alone starts without the supervisor's imports

    return supervisor.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
