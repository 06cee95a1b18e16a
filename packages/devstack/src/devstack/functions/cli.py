"""``devstack functions``: one function app in one process."""

import argparse
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from devstack import service
from devstack.functions import logs
from devstack.functions.host import serve
from devstack.functions.invocation import THREAD_NAME
from devstack.functions.settings import apply_settings_file
from devstack.local_settings import default_file

DRAIN_SECONDS = 3.0


def main(argv: list[str]) -> int:
    """Run until stopped; the exit code."""
    arguments = _parse(argv)
    logs.configure()
    code = service.run(partial(_serve, arguments), watch_stdin=arguments.watch_stdin)
    _end_in_spite_of_threads(code)
    return code


@contextlib.asynccontextmanager
async def _serve(arguments: argparse.Namespace) -> AsyncIterator[str]:
    app = arguments.app.resolve()
    if file := arguments.settings or default_file(app):
        apply_settings_file(file)
    async with serve(app, arguments.port, arguments.drain_seconds) as address:
        yield address


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("devstack functions", description=__doc__)
    parser.add_argument("--port", type=int, default=7071, help="0: any free port")
    parser.add_argument(
        "--app", type=Path, default=Path(), help="the folder with function_app.py; default: this one"
    )
    parser.add_argument(
        "--settings", type=Path, help="a local.settings.json; default: the app's, else its sample"
    )
    parser.add_argument(
        "--drain-seconds",
        type=float,
        default=DRAIN_SECONDS,
        help="what running invocations may take at the end",
    )
    parser.add_argument("--watch-stdin", action="store_true", help="stop when standard input ends")
    return parser.parse_args(argv)


def _end_in_spite_of_threads(code: int) -> None:
    # Python waits for threads before it ends, and a function that hangs in one would keep the process for
    # ever.
    if any(thread.name.startswith(THREAD_NAME) and _is_busy(thread) for thread in threading.enumerate()):
        logging.getLogger(__name__).warning("a function did not end in time and was cut off")
        logging.shutdown()
        os._exit(code)


def _is_busy(thread: threading.Thread) -> bool:
    # An idle thread of a pool that was shut down ends at once.
    thread.join(timeout=0.2)
    return thread.is_alive()
