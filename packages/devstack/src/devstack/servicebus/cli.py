"""``devstack servicebus``: one Service Bus namespace, alone."""

import argparse
import logging
from pathlib import Path

from devstack import service
from devstack.servicebus.server import DEFAULT_IDLE_SECONDS, Options, serve

DEFAULT_PORT = 5672
DEFAULT_ADMIN_PORT = 5300


def main(argv: list[str]) -> int:
    """Serve until asked to stop. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="devstack servicebus", description=__doc__)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="AMQP port; 0 takes a free one")
    parser.add_argument(
        "--admin-port", type=int, default=DEFAULT_ADMIN_PORT, help="management port; 0 takes a free one"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=service.default_data("servicebus"),
        help="folder of the data (default: %(default)s)",
    )
    parser.add_argument(
        "--config", type=Path, help="Config.json of Microsoft's emulator, with entities to be made"
    )
    parser.add_argument(
        "--faults", action="store_true", help="serve /_devstack/ on the management port: faults on demand"
    )
    parser.add_argument("--idle-timeout", type=float, default=DEFAULT_IDLE_SECONDS, help="seconds of silence")
    parser.add_argument("--watch-stdin", action="store_true", help="stop when standard input ends")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    options = Options(
        port=given.port,
        admin_port=given.admin_port,
        data=given.data,
        config=given.config,
        with_faults=given.faults,
        idle_seconds=given.idle_timeout,
    )
    return service.run(lambda: serve(options), watch_stdin=given.watch_stdin)
