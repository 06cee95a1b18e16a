"""``devstack storage``: Blob and Queue Storage alone."""

import argparse
from pathlib import Path

from devstack import service
from devstack.storage.server import serving


def main(argv: list[str]) -> int:
    """Serve until asked to stop; the exit code."""
    parser = argparse.ArgumentParser(
        prog="devstack storage",
        description="Blob and Queue Storage on this machine: Microsoft's Azurite, which npm fetches the first time.",
    )
    parser.add_argument(
        "--blob-port", type=int, default=10000, help="default %(default)s; 0 for any free one"
    )
    parser.add_argument(
        "--queue-port", type=int, default=10001, help="default %(default)s; 0 for any free one"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=service.default_data("storage"),
        help="folder of the data (default: %(default)s)",
    )
    parser.add_argument("--watch-stdin", action="store_true", help="stop at the end of standard input")
    arguments = parser.parse_args(argv)
    return service.run(
        lambda: serving(arguments.blob_port, arguments.queue_port, arguments.data.absolute()),
        watch_stdin=arguments.watch_stdin,
    )
