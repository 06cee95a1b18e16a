"""The ratios of the outbox to the bare SDKs, measured in one run on devstack: ``python -m tools.benchmarks``.

``--only PART`` (several times) measures single parts; only a run of all parts writes docs/internals/performance.md.
"""

from cosmos_outbox.cli.main import require

if __name__ == "__main__":
    require("benchmark")

import argparse
import asyncio
import logging
import sys
import tempfile
import time
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
    "start": starting.starts,
    "latency": latency.latencies,
    "in-process": in_process.latencies,
    "backlog": relaying.large_backlog,
    "feed": reading.readings,
}


async def measure(names: Sequence[str], say: Say) -> Part:
    """Measures the parts of these names, each on deployments of its own."""
    found = Part([], [])
    for name in names:
        with tempfile.TemporaryDirectory() as folder, Stack(Path(folder)) as stack:

            def new_bed(stack: Stack = stack) -> Bed:
                return Bed(stack.cosmos, stack.servicebus, stack.folder)

            part = await PARTS[name](new_bed, say)
        found = Part([*found.rows, *part.rows], [*found.charts, *part.charts])
    return found


def main() -> int:
    """Measures, prints one table, writes the page. Exit code 1 if a figure misses its bound, or there is none."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure this part alone; write no page"
    )
    chosen = parser.parse_args().only
    logging.disable(logging.WARNING)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {what}", flush=True)

    found = asyncio.run(measure(chosen or list(PARTS), say))
    if not found.rows:
        return 1
    print(f"\nMeasured on devstack: {report.machine()}\n\n{report.table(found.rows)}")
    if not chosen:
        report.write(found.rows, found.charts)
        print("\nwrote docs/internals/performance.md and docs/internals/performance/*.svg")
    return 0 if all(row.met for row in found.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
