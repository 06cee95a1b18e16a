"""Measures how fast the change feed is read: our processor, and Microsoft's .NET one, on the same container.

Each reads in a process of its own, the first time and again when it is warm: the code that .NET compiles while it runs
costs a new instance time, and later pages none.
"""

import asyncio
import os
import shutil
import statistics
import sys

from tools.benchmarks.bed import ROOT, Bed, backlog
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

PROGRAM = "DOTNET_READER"
"""The setting with the path of the program built from ``tools/benchmarks/dotnet``."""

CHANGES = 20_000
PAGES = {100: 1.1, 1000: 2.5}
"""The sizes of a page, with the bound of the first reading."""

_READINGS = 3
_PROCESSES = 3
_OURS = [sys.executable, "-m", "tools.benchmarks.reader"]


async def readings(new_bed: NewBed, say: Say) -> Part:
    """Measures both in turn; of several processes the median. Without the .NET program there is no comparison."""
    program = shutil.which(os.environ.get(PROGRAM, ""))
    if program is None:
        say(
            f"feed: not measured: {PROGRAM} names no .NET program (docs/internals/performance.md says how to build it)"
        )
        return Part([], [])
    bed = new_bed()
    await bed.deploy()
    await bed.store(backlog(CHANGES // 5, 5))
    rows = []
    for page, wanted in PAGES.items():
        say(f"feed: {CHANGES} changes in pages of {page}, our processor and .NET's")
        pairs = [
            [await _rates(command, bed, page) for command in (_OURS, [program])] for _ in range(_PROCESSES)
        ]
        ours, theirs = zip(*pairs, strict=True)
        rows += [
            _row(f"reading {CHANGES} changes, pages of {page}", ours, theirs, 0, wanted),
            _row("the same once the process is warm", ours, theirs, -1, 1),
        ]
    return Part(rows, [])


def _row(
    name: str, ours: tuple[list[float], ...], theirs: tuple[list[float], ...], reading: int, wanted: float
) -> Row:
    mine, other = (statistics.median(each[reading] for each in side) for side in (ours, theirs))
    return Row(name, f"{mine:.0f}/s", f"{other:.0f}/s: Microsoft's .NET processor", mine / other, wanted)


async def _rates(command: list[str], bed: Bed, page: int) -> list[float]:
    """Returns the rate of each reading of one process."""
    arguments = (*command, bed.database, str(page), str(CHANGES), str(_READINGS))
    environment = {**os.environ, "COSMOS": bed.cosmos.connection_string}
    process = await asyncio.create_subprocess_exec(
        *arguments, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {process.returncode}: what it printed above says why")
    return [float(line) for line in output.split()]
