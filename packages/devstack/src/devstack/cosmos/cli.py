"""``devstack cosmos``: the Cosmos DB alone."""

import argparse
import sys
from pathlib import Path

from devstack import service
from devstack.cosmos.resources.service import Options
from devstack.cosmos.server import serving
from devstack.cosmos.wire.auth import Authorizer

DEFAULT_PORT = 8081


def main(argv: list[str]) -> int:
    """Serve until asked to stop; the exit code."""
    arguments = _parser().parse_args(argv)
    options = Options(arguments.partitions, arguments.faults, arguments.ru_budget)
    authorizer = Authorizer(accept_entra=arguments.accept_entra)
    return service.run(
        lambda: serving(arguments.port, arguments.data, options, authorizer),
        watch_stdin=arguments.watch_stdin,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devstack cosmos", description="A Cosmos DB (NoSQL API) on this machine."
    )
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help="default %(default)s; 0 for any free one"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=service.default_data("cosmos"),
        help="folder of the data (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=_positive,
        help="physical partitions of each new container (default: by its throughput)",
    )
    parser.add_argument("--ru-budget", type=_rate, metavar="RU", help="RU a second; above it clients get 429")
    parser.add_argument(
        "--faults",
        action="store_true",
        help="serve /_devstack/: faults on demand, replicas that lag, and splits of partitions",
    )
    parser.add_argument(
        "--accept-entra", action="store_true", help="take unsigned Entra tokens besides the key"
    )
    parser.add_argument("--watch-stdin", action="store_true", help="stop at the end of standard input")
    return parser


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port: 0 to 65535")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to 1000")
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 1 <= number <= 10_000_000:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to 10000000")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
