"""Runs the demo; exit code 0 only if every promise held. It leaves nothing of its own stack behind."""

from tools.required import require

if __name__ == "__main__":
    require("demo")

import argparse
import asyncio
import io
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from devstack.console import Console
from devstack.local_azure import running
from devstack.local_settings import SAMPLE
from devstack.ports import SETTINGS
from devstack.service import CannotStart
from devstack.settings import StackSettings, read_settings
from tools.demo.narrator import Narrator
from tools.demo.story import Story
from tools.demo.witnesses import opened

ROOT = Path(__file__).resolve().parents[2]
EVENT_TTL_SECONDS = 10
LOG_LINES_ON_FAILURE = 40
FOREIGN = ("COSMOS", "SERVICEBUS", "AzureWebJobs", "EVENT_", "PARKED_", "RELAY_", "IDEMPOTENCY_", "DEVSTACK_")
"""Settings of the developer's own stack or of a real Azure, which the demo must not use."""


def main(arguments: list[str]) -> int:
    """Runs the demo. Exit code 0: every promise held; 1: a promise did not hold; 2: the demo could not start."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo", description="Show the path of an event, step by step."
    )
    parser.add_argument("--logs", action="store_true", help="show the logs of the services")
    log = sys.stdout if parser.parse_args(arguments).logs else io.StringIO()
    narrator = Narrator(sys.stdout)
    try:
        with tempfile.TemporaryDirectory(prefix="devstack-demo-") as data:
            asyncio.run(_run(_settings(os.environ, Path(data)), narrator, Console(log)))
    except CannotStart as problem:
        print(problem, file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except Exception as problem:  # noqa: BLE001 - an error that ends the story is a promise that did not hold
        narrator.check(f"the story runs to its end ({type(problem).__name__}: {problem})", held=False)
    narrator.conclude()
    if narrator.broken and isinstance(log, io.StringIO):
        print("\n".join(log.getvalue().splitlines()[-LOG_LINES_ON_FAILURE:]), file=sys.stderr)
    return 1 if narrator.broken else 0


def _settings(environment: Mapping[str, str], data: Path) -> StackSettings:
    ours = {name: value for name, value in environment.items() if not name.startswith(FOREIGN)}
    ours |= dict.fromkeys(SETTINGS.values(), "0")
    ours |= {"DEVSTACK_DATA": str(data), "EVENT_TTL_SECONDS": str(EVENT_TTL_SECONDS)}
    return read_settings(ours, ROOT, ROOT / SAMPLE)


async def _run(settings: StackSettings, narrator: Narrator, console: Console) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    started = loop.time()
    narrator.say("Starting Cosmos DB, Service Bus and the Functions host of this demo, on free ports ...")
    async with running(settings, console) as stack, opened(stack, narrator) as witnesses:
        narrator.say(f"Ready after {loop.time() - started:.1f} s.")
        await Story(narrator, witnesses, EVENT_TTL_SECONDS).run()
    narrator.say("")
    narrator.say(
        f"Everything is stopped and its data removed, {loop.time() - started:.0f} s after the start."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
