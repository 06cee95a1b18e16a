"""``devstack`` stops what it started: when asked, when a service cannot go on, when nobody reads.

SIGINT, SIGTERM and SIGHUP stop the stack in good order and count as success; a second one ends it at once.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from devstack.app_file import App
from devstack.console import Console
from devstack.kept import KeptService
from devstack.local_azure import LocalAzure
from devstack.service import CannotStart
from devstack.settings import StackSettings, read_settings


def main(arguments: list[str]) -> int:
    """Run the stack until asked to stop. The exit code: 0, or 2 with one line on what the user can mend."""
    options = _parser().parse_args(arguments)
    try:
        settings = read_settings(
            os.environ, options.app, options.settings, functions=options.functions, keys=options.keys
        )
        asyncio.run(_run_until_asked_to_stop(settings, Console(sys.stdout)))
    except CannotStart as problem:
        print(problem, file=sys.stderr, flush=True)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devstack",
        description="The local Azure: Cosmos DB, Service Bus and the Functions host with the app that devstack.toml "
        "describes. devstack cosmos, devstack servicebus, devstack functions: one of them alone; devstack clean: "
        "forget the data. Each has --help.",
        epilog="Environment: FUNCTIONS_PORT (7071), WEB_PORT (7072), COSMOS_PORT (8081), SERVICEBUS_PORT (5672), "
        "SERVICEBUS_ADMIN_PORT (5300), AZURITE_BLOB_PORT (10000), AZURITE_QUEUE_PORT (10001), 0 for any free port; "
        "DEVSTACK_DATA (.devstack), SERVICEBUS_CONFIG (a Config.json). A connection in the settings that leads to "
        "another machine is used as it is, and that service is not started here.",
    )
    parser.add_argument(
        "--app", type=Path, default=Path(), metavar="FOLDER", help="with devstack.toml; default: this folder"
    )
    parser.add_argument(
        "--no-functions", dest="functions", action="store_false", help="only Cosmos DB and Service Bus"
    )
    parser.add_argument(
        "--keys", action="store_true", help="the Functions host asks callers for keys, as in Azure"
    )
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="default: local.settings.json, else the sample"
    )
    return parser


async def _run_until_asked_to_stop(settings: StackSettings, console: Console) -> None:
    stack = LocalAzure(settings, console)
    serving = asyncio.create_task(_serve(stack, console))
    asked = asyncio.Event()

    def stop() -> None:
        if asked.is_set():
            stack.kill()
        asked.set()

    console.watch(asked.set)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    waiting = asyncio.create_task(asked.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    if asked.is_set():
        console.line("devstack", "stopping")
    try:
        serving.cancel()
        waiting.cancel()
        await asyncio.wait([serving, waiting])
    finally:
        await stack.stop()
    if not serving.cancelled():
        serving.result()


async def _serve(stack: LocalAzure, console: Console) -> None:
    started = asyncio.get_running_loop().time()
    console.line("devstack", f"settings {_short(stack.settings.file)}, data {_short(stack.settings.data)}")
    await stack.start()
    console.plain(_welcome(stack))
    console.plain(f"Ready (in {asyncio.get_running_loop().time() - started:.1f} s; Ctrl-C stops)")
    await stack.failure()


def _welcome(stack: LocalAzure) -> str:
    app = stack.settings.app
    lines = [
        "",
        f"Cosmos DB    {_where(stack.cosmos)}  {_containers(app)}".rstrip(),
        f"Service Bus  {_where(stack.servicebus)}  {_entities(app)}".rstrip(),
    ]
    if stack.storage:
        declared = app.storage
        names = ", ".join([*declared.queues, *declared.blob_containers])
        lines.append(f"Storage      {_where(stack.storage)}  {names}")
    if stack.functions:
        host = stack.functions.addresses[0].rstrip("/")
        url = host + app.functions.path
        lines += [f"Functions    {url}"]
        lines += [f"{name:<12} {host}{path}" for name, path in app.functions.pages.items()]
        lines += [f"Web page     {page}" for page in stack.functions.addresses[1:]]
        if stack.settings.keys_file:
            lines += [f"Keys         {_short(stack.settings.keys_file)}  sent as x-functions-key"]
        if app.functions.line_to_try:
            lines += ["", "Try it:", f"  {app.functions.line_to_try.replace('{url}', url)}"]
    else:
        lines += ["", "For the app's settings:"]
        lines += [f"  {app.cosmos.connection}={stack.cosmos_connection}"] if stack.cosmos else []
        lines += [f"  {app.servicebus.connection}={stack.servicebus_connection}"] if stack.servicebus else []
        lines += [f"  {app.storage.connection}={stack.storage_connection}"] if stack.storage else []
    return "\n".join([*lines, ""])


def _containers(app: App) -> str:
    databases: dict[str, list[str]] = {}
    for container in app.cosmos.containers:
        databases.setdefault(container.database, []).append(container.name)
    return "; ".join(f"{database}: {', '.join(names)}" for database, names in databases.items())


def _entities(app: App) -> str:
    topics = [
        f"{topic.name}: {', '.join(each.name for each in topic.subscriptions)}"
        for topic in app.servicebus.topics
    ]
    return "; ".join([*topics, *(queue.name for queue in app.servicebus.queues)])


def _where(service: KeptService | None) -> str:
    return " ".join(service.addresses) if service else "as the settings say"


def _short(path: Path | None) -> str:
    if path is None:
        return "of the environment alone"
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
