"""``devstack functions``: one function app, in a host and its worker processes."""

import argparse
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from devstack import service
from devstack.functions import logs, web
from devstack.functions.cors import ANY, Cors
from devstack.functions.host import Callers, serve
from devstack.functions.keys import FUNCTION_SETTING, MASTER_SETTING
from devstack.functions.listener import Stop
from devstack.functions.settings import apply_settings_file
from devstack.local_settings import KEYS_FILE, default_file, read_host

STOP_SECONDS = 10.0
"""What Azure leaves the process."""


def main(argv: list[str]) -> int:
    """Run until stopped; the exit code."""
    arguments = _parse(argv)
    logs.configure_host()
    return service.run(partial(_serve, arguments), watch_stdin=arguments.watch_stdin)


@contextlib.asynccontextmanager
async def _serve(arguments: argparse.Namespace) -> AsyncIterator[str]:
    app = arguments.app.resolve()
    file = arguments.settings or default_file(app)
    if file:
        apply_settings_file(file)
    host = read_host(file)
    if arguments.drain_seconds is None:
        stop = Stop(arguments.stop_seconds, drain=False)
    else:
        stop = Stop(arguments.drain_seconds, drain=True)
    data = (arguments.data or service.default_data("functions")).absolute()
    async with contextlib.AsyncExitStack() as serving:
        origins, page = host.cors if arguments.cors is None else arguments.cors, None
        if arguments.web:
            page = await serving.enter_async_context(web.serve(arguments.web, arguments.web_port))
            origins = origins if origins == ANY else f"{origins},{page.origins}"
        cors = Cors.parsed(origins, credentials=arguments.cors_credentials or host.cors_credentials)
        callers = Callers(arguments.keys, cors)
        address = await serving.enter_async_context(serve(app, data, arguments.port, stop, callers))
        if page:
            page.api = address.rstrip("/")
        yield f"{address} {page.address}" if page else address


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
        "--data",
        type=Path,
        help="the folder by which hosts of one app know each other; default: .devstack/functions",
    )
    parser.add_argument(
        "--stop-seconds",
        type=float,
        default=STOP_SECONDS,
        help="how long functions may go on after a stop, which does not count what they still do",
    )
    parser.add_argument(
        "--drain-seconds",
        type=float,
        help="make the stop a drain: functions may end within this time, and what they did counts",
    )
    parser.add_argument(
        "--keys",
        action="store_true",
        help=f"ask callers for keys, as Azure does; they are in {KEYS_FILE} in the data folder, and "
        f"{MASTER_SETTING} and {FUNCTION_SETTING} set two of them",
    )
    parser.add_argument(
        "--cors",
        metavar="ORIGINS",
        help='origins whose pages may call, with commas between them; default: "CORS" under "Host" in the settings',
    )
    parser.add_argument(
        "--cors-credentials", action="store_true", help="those pages may send cookies and the like"
    )
    parser.add_argument(
        "--web",
        type=Path,
        metavar="FOLDER",
        help="a web page that may call; it is served at an origin of its own",
    )
    parser.add_argument("--web-port", type=int, default=web.PORT, help="of that page; 0: any free port")
    parser.add_argument("--watch-stdin", action="store_true", help="stop when standard input ends")
    return parser.parse_args(argv)
