"""Writes one table of results to the terminal and beside docs/internals/performance.md, with the page's charts."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tools.benchmarks.bed import ROOT
from tools.benchmarks.chart import draw
from tools.benchmarks.measured import Chart, Row

PAGE = ROOT / "docs" / "internals" / "performance.md"
PICTURES = ROOT / "docs" / "internals" / "performance"
FIGURES = "figures.txt"
BEGIN, END = "<!-- measured: make bench writes from here -->", "<!-- to here -->"


def machine() -> str:
    """Describes the machine of the figures. Its load includes other programs."""
    cores, load = os.cpu_count(), os.getloadavg()[2]
    return f"{cores} cores, load average {load:.0f}, Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}"


def table(rows: Sequence[Row]) -> str:
    """Returns the table for a terminal."""
    head = ("measured", "ours", "compared with", "figure", "wanted", "")
    cells = [head, *((r.name, r.ours, r.bare, r.shown, r.bound, "" if r.met else "MISSED") for r in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def write(rows: Sequence[Row], charts: Sequence[Chart], page: Path = PAGE, pictures: Path = PICTURES) -> None:
    """Replaces the measured part of the page, the charts, and the table in a file of its own."""
    pictures.mkdir(exist_ok=True)
    (pictures / FIGURES).write_text(f"{table(rows)}\n")
    for chart in charts:
        (pictures / f"{chart.file}.svg").write_text(draw(chart))
    lines = [
        BEGIN,
        "",
        f"[All figures]({pictures.name}/{FIGURES}), measured on devstack: {machine()}.",
        "",
        *(f"![{chart.title}]({pictures.name}/{chart.file}.svg)\n" for chart in charts),
    ]
    text = page.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    page.write_text(before + "\n".join(lines) + END + after)
