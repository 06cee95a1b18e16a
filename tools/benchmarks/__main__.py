"""The ratios of the outbox to the bare SDKs, measured in one run on devstack: ``python -m tools.benchmarks``.

``--only PART`` (several times) measures single parts; only a run of all parts writes docs/internals/performance.md.
A part that fails is listed at the end, and the others are measured all the same.
"""

from tools.required import require

if __name__ == "__main__":
    require("benchmark")

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from devstack.testing import Stack
from tools.benchmarks import (
    arriving,
    creating,
    in_process,
    latency,
    reading,
    relaying,
    report,
    starting,
    subscribing,
    transports,
)
from tools.benchmarks.bed import Bed
from tools.benchmarks.measured import Part
from tools.benchmarks.relaying import NewBed, Say

PARTS: dict[str, Callable[[NewBed, Say], Awaitable[Part]]] = {
    "throughput": relaying.throughput,
    "far": relaying.far_away,
    "page": relaying.one_page,
    "subscribe": subscribing.rates,
    "arrive": arriving.latencies,
    "transports": transports.rates,
    "create": creating.creations,
    "import": starting.imports,
    "first-post": starting.first_posts,
    "first-event": starting.first_events,
    "latency": latency.latencies,
    "in-process": in_process.latencies,
    "backlog": relaying.large_backlog,
    "feed": reading.readings,
}


async def measure(names: Sequence[str], say: Say) -> tuple[Part, list[str]]:
    """Measures the parts of these names, each on deployments of its own. Returns also a line for each that failed."""
    found, failed = Part([], []), list[str]()
    for name in names:
        with tempfile.TemporaryDirectory() as folder, Stack(Path(folder)) as stack:

            def new_bed(stack: Stack = stack) -> Bed:
                return Bed(stack.cosmos, stack.servicebus, stack.folder)

            try:
                part = await PARTS[name](new_bed, say)
            except Exception as error:  # noqa: BLE001 - the other parts are measured all the same
                traceback.print_exc()
                failed.append(f"{name} was not measured: {str(error) or type(error).__name__}")
            else:
                found = Part([*found.rows, *part.rows], [*found.charts, *part.charts])
    return found, failed


def _keep_byte_code(folder: str) -> None:
    """Lets every process that is started find its imports compiled, as a deployed one does."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", folder)


def main() -> int:
    """Measures, prints one table, writes the page. Exit code 1 if a figure misses its bound, or a part fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure this part alone; write no page"
    )
    chosen = parser.parse_args().only
    logging.disable(logging.WARNING)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        _keep_byte_code(folder)
        found, failed = asyncio.run(measure(chosen or list(PARTS), say))
    print(f"\nMeasured on devstack: {report.machine()}\n\n{report.table(found.rows)}")
    if not chosen:
        report.write(found.rows, found.charts)
        print("\nwrote docs/internals/performance.md and docs/internals/performance/*.svg")
    wrong = [*(f"{row.name}: {row.shown}, wanted {row.bound}" for row in found.rows if not row.met), *failed]
    print("\n".join(["", "Not as wanted:", *wrong]) if wrong else "\nAll as wanted.")
    return 1 if wrong or not found.rows else 0


if __name__ == "__main__":
    sys.exit(main())
